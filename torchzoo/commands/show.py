"""`torchzoo show`: show one case of a run in full."""

from __future__ import annotations

import argparse
from typing import Any

from torchzoo.analysis.cases import find_case, read_report_data
from torchzoo.commands.arguments import say_damage, usable_path
from torchzoo.errors import UsageError
from torchzoo.report import one_case


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
    """Find the case and show it."""
    data = read_report_data([arguments.path])
    say_damage(data.runs[0])
    result = find_case(data.cases, arguments.case)
    if not arguments.samples:
        one_case.show(result)
        return 0
    if not result.measured:
        raise UsageError(f"{result.case.label()} has no samples: {result.reason}")
    print(one_case.samples_csv(result), end="")
    return 0
