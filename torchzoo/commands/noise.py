"""`torchzoo noise RUN`: how much a run's figures vary when nothing changes."""

from __future__ import annotations

import argparse
from typing import Any

from torchzoo.commands.arguments import kept_run, usable_path, write
from torchzoo.report import noise, terminal


def add_parser(commands: Any) -> None:
    """Add `noise` to argparse's subcommands."""
    parser = commands.add_parser(
        "noise",
        help="how much a run's figures vary when nothing changes, between processes and within",
        description="The A/A noise floor of each case of a run: from its repeats (`torchzoo run --repeats N`), and "
        "within a process.",
    )
    parser.add_argument("run", type=usable_path, metavar="RUN")
    parser.add_argument("--format", choices=["table", "md", "json"], default="table")
    parser.add_argument("-o", "--output", type=usable_path, metavar="FILE", help="write there instead of printing")
    parser.set_defaults(command=run)


def run(arguments: argparse.Namespace) -> int:
    """Show the noise of a run."""
    kept = kept_run(arguments.run)
    if arguments.format == "table" and arguments.output is None:
        terminal.show(noise.on_terminal(kept))
        return 0
    write(noise.as_json(kept) if arguments.format == "json" else noise.markdown(kept), arguments.output)
    return 0
