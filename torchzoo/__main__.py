"""Start `torchzoo`, `python -m torchzoo` and `run.py`."""

import atexit
import signal
import sys

if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
    signal.signal(signal.SIGINT, signal.SIG_DFL)  # Ctrl-C while modules are imported ends without a traceback

from torchzoo.cli import main as command_line


def main(*first: str) -> int:
    """Run the command line, with the arguments `first` before those of this process. Return the exit status."""
    if signal.getsignal(signal.SIGINT) is signal.SIG_DFL:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        return command_line([*first, *sys.argv[1:]])
    except ModuleNotFoundError as error:
        if (error.name or "torchzoo").partition(".")[0] == "torchzoo":
            raise
        print(f"torchzoo: {error.name} is not installed for this Python: run `python install.py`", file=sys.stderr)
        return 2
    finally:  # ignore Ctrl-C while Python ends; registered last, this runs before multiprocessing's handlers
        atexit.register(signal.signal, signal.SIGINT, signal.SIG_IGN)


if __name__ == "__main__":
    sys.exit(main())
