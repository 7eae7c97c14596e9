"""`torchzoo compare BASE CANDIDATE`: what got faster or slower between two runs, takes more memory, or broke."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any, TypeVar

from torchzoo.analysis.compare import compare_runs  # DifferenceKind, Metric, compare
from torchzoo.analysis.findings import Metric
from torchzoo.commands.arguments import kept_run, write
from torchzoo.errors import UsageError, unknown
from torchzoo.provenance import DifferenceKind
from torchzoo.report import run_comparison as shown

OK, REGRESSION = 0, 1
_Word = TypeVar("_Word", DifferenceKind, Metric)
_ACROSS = tuple(ground for ground in DifferenceKind if ground is not DifferenceKind.OTHER)


def add_parser(commands: Any) -> None:
    """Add `compare` to argparse's subcommands."""
    parser = commands.add_parser(
        "compare",
        help="compare two runs: what got faster, slower, larger, or broke",
        description="Hold the run CANDIDATE against the run BASE: a verdict for each case and metric, from a test on "
        "the samples and a threshold. Exit status: 1 where something is slower, takes more memory or newly fails, 0 "
        "otherwise, 2 wrong usage.",
    )
    parser.add_argument("base", type=Path, metavar="BASE")
    parser.add_argument("candidate", type=Path, metavar="CANDIDATE")
    parser.add_argument(
        "--threshold",
        type=_share,
        default=_share("7%"),
        metavar="P%",
        help="the least difference that matters (default: 7%%, as in TorchBench)",
    )
    parser.add_argument(
        "--across",
        nargs="?",
        const=",".join(_ACROSS),
        default="",
        metavar="WHAT",
        help="the runs differ in hardware, torch or driver on purpose: --across=torch,driver keeps the verdicts, "
        "hardware gives ratios of one device against the other; alone: whatever differs",
    )
    parser.add_argument("--metric", default=",".join(Metric), metavar="M[,M]", help=f"(default: {','.join(Metric)})")
    parser.add_argument("--format", choices=["table", "md", "github-issue", "json"], default="table")
    parser.add_argument("-o", "--output", type=Path, metavar="FILE", help="write there instead of printing")
    parser.set_defaults(command=run)


def run(arguments: argparse.Namespace) -> int:
    """Compare, show, and say by the status whether there is a regression."""
    comparison = compare_runs(
        kept_run(arguments.base),
        kept_run(arguments.candidate),
        threshold=arguments.threshold,
        across=frozenset(_members(arguments.across, _ACROSS, "--across")),
        metrics=_members(arguments.metric, tuple(Metric), "--metric"),
    )
    if arguments.format == "table":
        text = _plain(shown.terminal(comparison))
    else:
        writers = {"md": shown.markdown, "github-issue": shown.github_issue, "json": shown.as_json}
        text = writers[arguments.format](comparison)
    write(text, arguments.output)
    return REGRESSION if comparison.has_regression else OK


def _plain(text: Any) -> str:
    return f"{text.plain}\n"


def _share(text: str) -> float:
    """`7%` or `0.07`."""
    try:
        share = float(text.removesuffix("%")) / 100 if text.endswith("%") else float(text)
    except ValueError:
        share = 0.0
    if not 0 < share < 1:
        raise argparse.ArgumentTypeError(f"expected a share such as 7% or 0.07, found '{text}'")
    return share


def _members(text: str, known: tuple[_Word, ...], option: str) -> tuple[_Word, ...]:
    """A comma list as members of an enum.

    Raises:
        UsageError: a word that is none.
    """
    by_name = {member.value: member for member in known}
    words = [word for word in text.split(",") if word]
    for word in words:
        if word not in by_name:
            raise UsageError(f"{option}: {unknown('word', word, by_name)} (write {option}={known[0].value})")
    return tuple(by_name[word] for word in dict.fromkeys(words))
