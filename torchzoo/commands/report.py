"""`torchzoo report`: runs that were kept, as tables, Markdown, CSV, JSON or a page for the browser."""

from __future__ import annotations

import argparse
import io
import sys
from typing import Any

from torchzoo.analysis.cases import read_report_data
from torchzoo.commands.arguments import usable_path, write
from torchzoo.report import terminal
from torchzoo.report.formats import DEFAULT, FORMATS


def add_parser(commands: Any) -> None:
    """Add `report` to argparse's subcommands."""
    report = commands.add_parser(
        "report",
        help="show runs that were kept with -o",
        description="Show a run, or several of the same machine, software and settings as one: every case with the "
        "command that measures it again, and totals by domain, mode, backend and precision.",
    )
    report.add_argument(
        "paths", type=usable_path, nargs="+", metavar="RUN", help="a folder that `torchzoo run -o` wrote"
    )
    report.add_argument(
        "--format",
        choices=list(FORMATS),
        default=DEFAULT,
        help=f"{'; '.join(f'{name}: {one.text}' for name, one in FORMATS.items())} (default: {DEFAULT})",
    )
    report.add_argument(
        "-o", "--output", type=usable_path, metavar="FILE", help="write there instead of to the terminal"
    )
    report.set_defaults(command=run)


def run(arguments: argparse.Namespace) -> int:
    """Read the runs and write the report.

    Raises:
        StoreError: a run that can't be read, or runs that can't be in one report.
        UsageError: the file can't be written.
    """
    data = read_report_data(arguments.paths)
    from torchzoo.report.overview import notes

    for note in notes(data):
        terminal.say(f"torchzoo: {note}")
    report_format = FORMATS[arguments.format]
    if arguments.output is None:
        report_format.write(data, sys.stdout)
        return 0
    text = io.StringIO()
    report_format.write(data, text)
    write(text.getvalue(), arguments.output)
    terminal.say(f"written to {arguments.output}")
    return 0
