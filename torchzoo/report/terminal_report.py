"""A whole report for the terminal: the cases, what they come to, and at the end a summary that fits a screen."""

from __future__ import annotations

from collections.abc import Sequence
from typing import IO, Any

import msgspec

from torchzoo.analysis import ranking
from torchzoo.analysis.cases import CaseResult, ReportData
from torchzoo.analysis.overview import overview
from torchzoo.analysis.ranking import SortKey
from torchzoo.report import one_case, tables, terminal
from torchzoo.report.case_lines import CaseLines
from torchzoo.report.overview import document
from torchzoo.report.summary import before_the_summary, next_steps, summary


class View(msgspec.Struct, frozen=True, kw_only=True):
    """Which cases are shown, and in what order. By default all, in the order of the plan."""

    sort: SortKey | None = None
    worst: int | None = None  # only so many of them, the worst first
    best: int | None = None


def write(data: ReportData, file: IO[str], view: View = View()) -> None:  # noqa: B008  it is frozen
    """Write a single case in full; many cases, a line each, with their totals; or the worst and the best of them."""
    if len(data.cases) == 1:
        one_case.show(data.cases[0], file)
        return
    if selected := _selected(data.cases, view):
        parts: list[Any] = [CaseLines(selected)]
    else:
        results = data.cases if view.sort is None else ranking.in_order(data.cases, view.sort)
        parts = [tables.terminal_table(results), "", terminal.render(document(data, overview(data.cases)))]
        parts += [terminal.hanging(line) for run in data.runs for line in before_the_summary(run)]
    terminal.show(*parts, summary(data.runs, data.cases), file=file)
    for line in next_steps(data.cases):
        terminal.show_line(line, file)


def _selected(results: Sequence[CaseResult], view: View) -> dict[str, list[CaseResult]]:
    """The worst, then the best, by the title of their table; empty where all are shown, or none can be chosen."""
    key = ranking.default_key(results) if view.sort in (None, SortKey.MODEL) else view.sort
    ranked = ranking.ranked(results, key)
    chosen = {"worst": ranked[: view.worst or 0], "best": ranked[::-1][: view.best or 0]}
    return {
        f"the {word} {len(some)} of {len(ranked)} cases that passed, by {key}": some
        for word, some in chosen.items()
        if some
    }
