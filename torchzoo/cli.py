"""The command line. Each command is a module of `torchzoo.commands`, imported only when it is asked for.

Torch is never imported in this process, except by `torchzoo describe`.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import os
import sys
from collections.abc import Iterable, Sequence
from importlib import import_module
from pathlib import Path
from typing import NoReturn

import torchzoo
from torchzoo.errors import TorchzooError, UsageError
from torchzoo.report import terminal
from torchzoo.report.text import visible

OK, USAGE, INTERRUPTED = 0, 2, 130
LONGEST_MESSAGE = 1000  # characters: a message repeats what was given, however long that is

#: The commands in the order of `torchzoo --help`, and their modules.
COMMANDS = {
    "run": "run",
    "ab": "ab",
    "list": "listing",
    "report": "report",
    "compare": "compare",
    "noise": "noise",
    "history": "history",
    "bisect": "bisect",
    "watch": "watch",
    "export": "export",
    "tune-batch": "tune_batch",
    "describe": "describe",
    "userbenchmark": "userbenchmark",
    "study": "study",
    "doctor": "doctor",
    "env": "env",
}


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command; returns the exit status: 0 all well, 1 a case failed, 2 wrong usage, 130 interrupted."""
    _open_streams()
    arguments = list(sys.argv[1:] if argv is None else argv)
    if arguments[:1] == ["install"]:
        from torchzoo import install

        return install.main(arguments[1:], prog="torchzoo install")
    try:
        named = [name for name in arguments[:1] if name in COMMANDS]
        parsed = build_parser(named or COMMANDS).parse_args(arguments)
        _check_current_folder()
        status: int = parsed.command(parsed)
        sys.stdout.flush()
    except TorchzooError as error:
        terminal.say(f"torchzoo: error: {_short(str(error))}")
        return USAGE
    except KeyboardInterrupt:
        terminal.say("torchzoo: interrupted")
        return INTERRUPTED
    except BrokenPipeError:  # the reader, `head` for example, has seen enough
        _drop_output()
        return OK
    except OSError as error:  # a full disk, for example
        what = error.strerror or str(error)
        terminal.say(f"torchzoo: error: {_short(what if error.filename is None else f'{error.filename}: {what}')}")
        _drop_output()
        return USAGE
    return status


def _open_streams() -> None:
    """Open what the caller has closed of standard input, output and error, and let no character stop a message.

    A file that is opened later would take the place of a closed stream, and get what is printed.
    """
    while (descriptor := os.open(os.devnull, os.O_RDWR)) <= 2:
        os.set_inheritable(descriptor, True)  # noqa: FBT003  its only argument
    os.close(descriptor)
    for number, name in ((1, "stdout"), (2, "stderr")):
        if getattr(sys, name) is None:
            setattr(sys, name, os.fdopen(number, "w", encoding="utf-8"))
        if isinstance(stream := getattr(sys, name), io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")  # for characters that its encoding lacks


def _check_current_folder() -> None:
    """Raises `UsageError` if the current folder was deleted: then no process can be started, and no path is found."""
    try:
        Path.cwd()
    except FileNotFoundError as error:
        raise UsageError("the current folder was deleted: change to another one") from error


def _drop_output() -> None:
    """What is left to print can't be printed: Python must not try once more when it ends."""
    with contextlib.suppress(io.UnsupportedOperation), Path(os.devnull).open("wb") as nowhere:
        os.dup2(nowhere.fileno(), sys.stdout.fileno())


def _short(message: str) -> str:
    """The message without its middle, if it is very long."""
    if len(message) <= LONGEST_MESSAGE:
        return message
    return f"{message[: LONGEST_MESSAGE // 2]} ... {message[-LONGEST_MESSAGE // 2 :]}"


class _Parser(argparse.ArgumentParser):
    """Argparse, with errors of one line that are safe to show."""

    def error(self, message: str) -> NoReturn:
        self.exit(USAGE, f"{visible(_short(f'{self.prog}: error: {message}'))}; see `{self.prog} --help`\n")


def build_parser(names: Iterable[str] = COMMANDS) -> argparse.ArgumentParser:
    """The parser of these commands. Each sets `command`, a function from the arguments to an exit status."""
    parser = _Parser(prog="torchzoo", description="Measure PyTorch models: time, memory, speedups.")
    parser.add_argument("--version", action="version", version=f"torchzoo {torchzoo.__version__}")
    commands = parser.add_subparsers(metavar="COMMAND", required=True)
    for name in names:
        import_module(f"torchzoo.commands.{COMMANDS[name]}").add_parser(commands)
    commands.add_parser("install", help="install models' libraries; see `torchzoo install --help`")
    return parser
