"""Run the command line. Each command is a module of `torchzoo.commands`, imported on demand.

Torch is never imported in this process, except by `torchzoo list --table` and `torchzoo check-model`.
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
from typing import Any, NoReturn

import torchzoo
from torchzoo.commands.examples import EXAMPLES
from torchzoo.errors import TorchzooError, UsageError, unknown
from torchzoo.report import terminal
from torchzoo.report.text import visible

OK, USAGE, INTERRUPTED = 0, 2, 130
SHELLS = ("bash", "zsh", "tcsh")
BEFORE_EXAMPLES = "examples:"
LONGEST_MESSAGE = 1000  # characters: messages quote the user's input, which may be long

#: The commands in the order of `torchzoo --help`, and their modules.
COMMANDS = {
    "run": "run",
    "ab": "ab",
    "list": "listing",
    "report": "report",
    "show": "show",
    "compare": "compare",
    "history": "history",
    "bisect": "bisect",
    "watch": "watch",
    "export": "export",
    "new": "new",
    "check-model": "check_model",
    "dynamobench": "dynamobench",
    "userbenchmark": "userbenchmark",
    "study": "study",
    "doctor": "doctor",
    "env": "env",
}

#: Words that are not commands, and the options for their purpose.
ELSEWHERE = {
    "noise": "report RUN --noise",
    "narrow": "bisect --inside-inductor RUN",
    "tune-batch": "doctor --batches MODEL",
    "describe": "list --table",
}

#: Commands that measure. They stop, pin and end whole trees of processes, by signals, fork, prctl and /proc.
MEASURES = frozenset({"run", "ab", "bisect", "watch", "userbenchmark", "study", "doctor"})


def main(argv: Sequence[str] | None = None) -> int:
    """Run a command, and return the exit status: 0 success, 1 a case failed, 2 wrong usage, 130 interrupted."""
    _open_streams()
    arguments = list(sys.argv[1:] if argv is None else argv)
    if arguments[:1] == ["install"]:
        from torchzoo import install

        return install.main(arguments[1:], prog="torchzoo install")
    try:
        if arguments[:1] and arguments[0] in ELSEWHERE:
            raise UsageError(f"there is no command {arguments[0]}: use `torchzoo {ELSEWHERE[arguments[0]]}`")
        named = [name for name in arguments[:1] if name in COMMANDS]
        _check_system(named)
        parsed = build_parser(named or COMMANDS).parse_args(arguments, argparse.Namespace(words=arguments))
        _check_current_folder()
        status: int = parsed.command(parsed)
        sys.stdout.flush()
    except TorchzooError as error:
        terminal.say(f"torchzoo: error: {_short(str(error))}")
        return USAGE
    except KeyboardInterrupt:
        terminal.say("torchzoo: interrupted")
        return INTERRUPTED
    except BrokenPipeError:  # the reader, such as `head`, has ended
        _drop_output()
        return OK
    except OSError as error:  # a full disk, for example
        what = error.strerror or str(error)
        terminal.say(f"torchzoo: error: {_short(what if error.filename is None else f'{error.filename}: {what}')}")
        _drop_output()
        return USAGE
    return status


def _check_system(named: Sequence[str]) -> None:
    """Raise `UsageError` if a command that measures is used on another system than Linux."""
    if sys.platform != "linux" and MEASURES.intersection(named):
        way = "use WSL 2" if sys.platform == "win32" else "use a virtual machine or a container with Linux"
        others = ", ".join(name for name in COMMANDS if name not in MEASURES)
        raise UsageError(
            f"`torchzoo {named[0]}` needs Linux, where it can stop, pin and end the processes that it measures; this "
            f"is {sys.platform}: {way}. These commands work here: {others}, install"
        )


def _open_streams() -> None:
    """Reopen closed standard streams, and let no character stop a message.

    Otherwise a file that is opened later would take the place of a closed stream, and get its output.
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
    """Raise `UsageError` if the current folder was deleted: no process could be started, and no path be found."""
    try:
        Path.cwd()
    except FileNotFoundError as error:
        raise UsageError("the current folder was deleted: change to another one") from error


def _drop_output() -> None:
    """Redirect the output that can't be printed, so that Python does not try again when it ends."""
    with contextlib.suppress(io.UnsupportedOperation), Path(os.devnull).open("wb") as nowhere:
        os.dup2(nowhere.fileno(), sys.stdout.fileno())


def _short(message: str) -> str:
    """The message without its middle, if it is very long."""
    if len(message) <= LONGEST_MESSAGE:
        return message
    return f"{message[: LONGEST_MESSAGE // 2]} ... {message[-LONGEST_MESSAGE // 2 :]}"


class _Help(argparse.HelpFormatter):
    """A formatter of help that keeps the lines of examples."""

    def _fill_text(self, text: str, width: int, indent: str) -> str:
        return text if text.startswith(BEFORE_EXAMPLES) else super()._fill_text(text, width, indent)


class _Parser(argparse.ArgumentParser):
    """An argument parser with safe one-line errors, and examples below the help."""

    def __init__(self, **how: Any) -> None:
        super().__init__(**{"formatter_class": _Help, **how})
        command = self.prog.removeprefix("torchzoo ")
        if command in EXAMPLES:
            self.epilog = "\n  ".join([BEFORE_EXAMPLES, *EXAMPLES[command]])

    def _check_value(self, action: argparse.Action, value: Any) -> None:
        if action.choices is not None and value not in action.choices:
            raise argparse.ArgumentError(action, unknown("word", str(value), map(str, action.choices)))

    def error(self, message: str) -> NoReturn:
        self.exit(USAGE, f"{visible(_short(f'{self.prog}: error: {message}'))}; see `{self.prog} --help`\n")


class _PrintCompletion(argparse.Action):
    """The action that prints a script for a shell, and ends."""

    def __call__(
        self, parser: argparse.ArgumentParser, namespace: object, values: object, option_string: str | None = None
    ) -> None:
        from torchzoo.commands.completion import script

        print(script(parser, str(values)))
        parser.exit()


def build_parser(names: Iterable[str] = COMMANDS) -> argparse.ArgumentParser:
    """The parser of these commands. Each command sets `command`, a function from the arguments to an exit status."""
    parser = _Parser(prog="torchzoo", description="Measure PyTorch models: time, memory, speedups.")
    parser.add_argument("--version", action="version", version=f"torchzoo {torchzoo.__version__}")
    parser.add_argument(
        "--print-completion",
        action=_PrintCompletion,
        choices=SHELLS,
        metavar="SHELL",
        help=f"print a script with which {', '.join(SHELLS)} complete commands, options and models",
    )
    commands = parser.add_subparsers(metavar="COMMAND", required=True)
    for name in names:
        if sys.platform != "linux" and name in MEASURES:  # its modules can't be imported everywhere
            commands.add_parser(name, help="(needs Linux)")
        else:
            import_module(f"torchzoo.commands.{COMMANDS[name]}").add_parser(commands)
    commands.add_parser("install", help="install models' libraries; see `torchzoo install --help`")
    return parser
