"""`torchzoo show`: show one case of a run in full."""

from __future__ import annotations

import argparse
from typing import Any

from torchzoo.analysis.cases import read_report_data
from torchzoo.analysis.find_case import find_case
from torchzoo.commands.arguments import usable_path
from torchzoo.errors import UsageError
from torchzoo.report import one_case, terminal


def add_parser(commands: Any) -> None:
    """Add `show` to argparse's subcommands."""
    parser = commands.add_parser(
        "show",
        help="show one case of a run in full",
        description="Show one case of a run in full: its axes, what became of it, every figure with its interval, its "
        "samples, remarks in words, the machine, and the command that measures it again.",
    )
    parser.add_argument("path", type=usable_path, metavar="RUN", help="a folder that `torchzoo run -o` wrote")
    parser.add_argument(
        "case",
        nargs="+",
        metavar="CASE",
        help="words that only this case has, as reports print them: resnet18 train inductor bs16; globs are allowed",
    )
    parser.add_argument(
        "--samples", action="store_true", help="print the time of each timed step instead, in seconds, as CSV"
    )
    parser.set_defaults(command=run)


def run(arguments: argparse.Namespace) -> int:
    """Find the case and show it.

    Raises:
        StoreError: the run can't be read.
        UsageError: not exactly one case matches, or the case has no samples.
    """
    data = read_report_data([arguments.path])
    for one in data.runs:
        if one.damage:
            terminal.say(f"torchzoo: {one.damage}")
    result = find_case(data.cases, arguments.case)
    if not arguments.samples:
        one_case.show(result)
        return 0
    if not result.measured:
        raise UsageError(f"{result.case.label()} has no samples: {result.reason}")
    print(one_case.samples_csv(result), end="")
    return 0
