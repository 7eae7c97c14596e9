"""The command line. Each command is a module of `torchzoo.commands`, imported only when it is asked for.

Torch is never imported in this process, except by `torchzoo describe`.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterable, Sequence
from importlib import import_module

import torchzoo
from torchzoo.errors import TorchzooError

OK, USAGE, INTERRUPTED = 0, 2, 130

#: The commands in the order of `torchzoo --help`, and their modules.
COMMANDS = {
    "run": "run",
    "list": "listing",
    "report": "report",
    "compare": "compare",
    "noise": "noise",
    "export": "export",
    "tune-batch": "tune_batch",
    "describe": "describe",
    "userbenchmark": "userbenchmark",
    "doctor": "doctor",
}


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command; returns the exit status: 0 all well, 1 a case failed, 2 wrong usage, 130 interrupted."""
    arguments = list(sys.argv[1:] if argv is None else argv)
    if arguments[:1] == ["install"]:
        from torchzoo import install

        return install.main(arguments[1:], prog="torchzoo install")
    named = [name for name in arguments[:1] if name in COMMANDS]
    parsed = build_parser(named or COMMANDS).parse_args(arguments)
    try:
        status: int = parsed.command(parsed)
    except TorchzooError as error:
        print(f"torchzoo: error: {error}", file=sys.stderr)
        return USAGE
    except KeyboardInterrupt:
        print("torchzoo: interrupted", file=sys.stderr)
        return INTERRUPTED
    except BrokenPipeError:  # the reader, `head` for example, has seen enough
        sys.stderr.close()
        return OK
    return status


def build_parser(names: Iterable[str] = COMMANDS) -> argparse.ArgumentParser:
    """The parser of these commands. Each sets `command`, a function from the arguments to an exit status."""
    parser = argparse.ArgumentParser(prog="torchzoo", description="Measure PyTorch models: time, memory, speedups.")
    parser.add_argument("--version", action="version", version=f"torchzoo {torchzoo.__version__}")
    commands = parser.add_subparsers(metavar="COMMAND", required=True)
    for name in names:
        import_module(f"torchzoo.commands.{COMMANDS[name]}").add_parser(commands)
    commands.add_parser("install", help="install models' libraries; see `torchzoo install --help`")
    return parser
