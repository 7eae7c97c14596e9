"""`torchzoo compare BASE CANDIDATE`: find what is faster, slower or broken in one run, compared with another."""

from __future__ import annotations

import argparse
from typing import Any

from torchzoo.analysis.compare import are_sides, compare_runs
from torchzoo.analysis.judge import LEAST_THRESHOLD, THRESHOLD
from torchzoo.analysis.run_figures import Metric
from torchzoo.commands.arguments import choices, kept_run, share_of, usable_path, write
from torchzoo.machine.differences import DifferenceKind
from torchzoo.report.run_comparison import FORMATS

OK, REGRESSION = 0, 1
_ACROSS = tuple(kind for kind in DifferenceKind if kind is not DifferenceKind.OTHER)


def add_parser(commands: Any) -> None:
    """Add `compare` to argparse's subcommands."""
    parser = commands.add_parser(
        "compare",
        help="compare two runs: what is faster, slower or larger, and what broke",
        description="Compare the run CANDIDATE with the run BASE: a verdict for each case and metric, from a test on "
        "the samples and a threshold. Exit status: 1 if something is slower, takes more memory or newly fails, 0 "
        "otherwise, 2 for wrong usage.",
    )
    parser.add_argument("base", type=usable_path, metavar="BASE")
    parser.add_argument("candidate", type=usable_path, metavar="CANDIDATE")
    parser.add_argument(
        "--threshold",
        type=share_of,
        metavar="P%",
        help="the least difference that matters, such as 7%% (default: for each case what its noise between repeats "
        f"allows, at least {LEAST_THRESHOLD:.0%}%; {THRESHOLD:.0%}%, as in TorchBench, where there are no repeats)",
    )
    parser.add_argument(
        "--across",
        nargs="?",
        const=",".join(_ACROSS),
        default="",
        metavar="WHAT",
        help="what the runs differ in on purpose: hardware, torch, driver, kernels (of libraries such as flash-attn, "
        "which others call where they are installed), or without WHAT anything. With hardware there are ratios of one "
        "device against the other; with the others there are verdicts",
    )
    parser.add_argument("--metric", default=",".join(Metric), metavar="M[,M]", help=f"(default: {','.join(Metric)})")
    parser.add_argument("--format", choices=FORMATS, default="table")
    parser.add_argument("-o", "--output", type=usable_path, metavar="FILE", help="write there instead of printing")
    parser.set_defaults(command=run)


def run(arguments: argparse.Namespace) -> int:
    """Compare two runs and show the result. Return `REGRESSION` or `OK`."""
    base, candidate = kept_run(arguments.base), kept_run(arguments.candidate)
    comparison = compare_runs(
        base,
        candidate,
        threshold=arguments.threshold,
        across=frozenset(choices(arguments.across, _ACROSS, "difference") if arguments.across else ()),
        metrics=choices(arguments.metric, Metric, "metric"),
        in_turns=are_sides(base.path, candidate.path),
    )
    write(FORMATS[arguments.format](comparison), arguments.output)
    return REGRESSION if comparison.has_regression else OK
