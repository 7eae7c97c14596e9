"""The command line. Torch is never imported in this process, but for `torchzoo describe`."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence

import torchzoo
from torchzoo.commands import compare, describe, doctor, export, listing, noise, report, run, tune_batch, userbenchmark
from torchzoo.errors import TorchzooError

OK, USAGE, INTERRUPTED = 0, 2, 130


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command; returns the exit status: 0 all well, 1 a case failed, 2 wrong usage, 130 interrupted."""
    arguments = list(sys.argv[1:] if argv is None else argv)
    if arguments[:1] == ["install"]:
        from torchzoo import install

        return install.main(arguments[1:], prog="torchzoo install")
    parsed = build_parser().parse_args(arguments)
    try:
        status: int = parsed.command(parsed)
    except TorchzooError as error:
        print(f"torchzoo: error: {error}", file=sys.stderr)
        return USAGE
    except KeyboardInterrupt:
        print("torchzoo: interrupted", file=sys.stderr)
        return INTERRUPTED
    except BrokenPipeError:  # the reader, `head` for one, has seen enough
        sys.stderr.close()
        return OK
    return status


def build_parser() -> argparse.ArgumentParser:
    """The parser of all commands; each sets `command`, a function from what was given to an exit status."""
    parser = argparse.ArgumentParser(prog="torchzoo", description="Measure PyTorch models: time, memory, speedups.")
    parser.add_argument("--version", action="version", version=f"torchzoo {torchzoo.__version__}")
    commands = parser.add_subparsers(metavar="COMMAND", required=True)
    for command in (run, listing, report, compare, noise, export, tune_batch, describe, userbenchmark, doctor):
        command.add_parser(commands)
    commands.add_parser("install", help="install models' libraries; see `torchzoo install --help`")
    return parser
