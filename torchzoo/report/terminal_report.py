"""A whole report for the terminal: the cases, their totals, and at the end a summary that fits a screen."""

from __future__ import annotations

import enum
import math
from collections.abc import Iterable, Sequence
from typing import IO, Any

import msgspec

from torchzoo.analysis.cases import CaseResult, ReportData, Status
from torchzoo.analysis.frame import figure
from torchzoo.analysis.totals import overview
from torchzoo.record import CheckStatus
from torchzoo.report import one_case, some_cases, terminal, units
from torchzoo.report.case_lines import CaseLines
from torchzoo.report.checks import check_of
from torchzoo.report.overview import document
from torchzoo.report.remarks import what_failed
from torchzoo.report.summary import before_the_summary, next_steps, summary

MOST_LABELS = 4  # of cases that have a reason in common


class SortKey(enum.StrEnum):
    """The key by which cases are sorted, worst first: the least speedup, the longest time, the most memory."""

    SPEEDUP = "speedup"
    TIME = "time"
    MEMORY = "memory"
    MODEL = "model"


class View(msgspec.Struct, frozen=True, kw_only=True):
    """The choice and the order of the cases that are shown: by default all, in the order of the plan."""

    sort: SortKey | None = None
    worst: int | None = None  # only so many of them, the worst first
    best: int | None = None


def write(data: ReportData, file: IO[str], view: View = View()) -> None:  # noqa: B008  it is frozen
    """Write a single case in full; many cases, a line each, with their totals; or the worst and the best of them."""
    figures = [] if data.host is None else some_cases.three_figures(data.cases, data.host)
    there: list[Any] = ["", terminal.render(figures)] if figures else []
    if len(data.cases) == 1:
        one_case.show(data.cases[0], file)
        terminal.show(*there, file=file)
        return
    if selected := _selected(data.cases, view):
        parts: list[Any] = [CaseLines(selected)]
    else:
        results = data.cases if view.sort is None else _in_order(data.cases, view.sort)
        parts = [terminal_table(results), *there, "", terminal.render(document(data, overview(data.cases)))]
        parts += [terminal.Hanging(line) for run in data.runs for line in before_the_summary(run)]
    terminal.show(*parts, summary(data.runs, data.cases), file=file)
    for line in next_steps(data.cases):
        terminal.show_line(line, file)


def terminal_table(results: Sequence[CaseResult]) -> Any:
    """Return a line for each case, and the reasons why some have no figures."""
    from rich.console import Group

    if not results:
        return Group()
    lines = CaseLines({f"{len(results)} case{'s' * (len(results) != 1)}": results})
    above, below = some_cases.several_backends(results), some_cases.document(results)
    return Group(
        *([terminal.render(above), ""] if above else []),
        lines,
        *map(terminal.Hanging, [*not_measured(results), *some_cases.disagreements(results)]),
        *(["", terminal.render(below)] if below else []),
    )


def not_measured(results: Sequence[CaseResult]) -> list[str]:
    """Return the reasons why cases have no figures: a line for each reason, with the first few cases that have it.

    Cases that were checked and are correct are left out: their own line says so.
    """
    cases_by_reason: dict[str, list[str]] = {}
    for result in results:
        found = check_of(result) if result.status is Status.CHECKED else None
        if found is not None and found.status is CheckStatus.CORRECT:
            continue
        for reason in what_failed(result):
            cases_by_reason.setdefault(reason, []).append(result.case.label())
    return [
        f"{reason} ({len(labels)}): {units.first_few(labels, MOST_LABELS)}"
        for reason, labels in sorted(cases_by_reason.items(), key=lambda item: item[0].startswith("skipped"))
    ]


_FIGURES = {SortKey.SPEEDUP: "speedup", SortKey.TIME: "latency_s", SortKey.MEMORY: "peak_bytes"}


def _badness(result: CaseResult, key: SortKey) -> float | None:
    """The sort value of a case, higher for worse cases; None if the case lacks the figure."""
    value: float | None = figure(_FIGURES[key]).number(result.measured_figures)
    return -value if value is not None and key is SortKey.SPEEDUP else value


def _in_order(results: Iterable[CaseResult], key: SortKey) -> list[CaseResult]:
    """The cases, worst first, or by name for `MODEL`. Cases without the figure come last, in their order."""
    if key is SortKey.MODEL:
        return sorted(results, key=lambda result: result.case.model.lower())
    badness = {id(result): _badness(result, key) for result in results}
    return sorted(results, key=lambda result: -math.inf if (bad := badness[id(result)]) is None else bad, reverse=True)


def _selected(results: Sequence[CaseResult], view: View) -> dict[str, list[CaseResult]]:
    """Return the worst cases, then the best, by title of their table; none if all are shown or none can be chosen.

    Figures of cases that did not pass can't be trusted. The default is the speedup, if a case has one, else the time.
    """
    key = view.sort
    if key in (None, SortKey.MODEL):
        has_speedup = any(_badness(result, SortKey.SPEEDUP) is not None for result in results)
        key = SortKey.SPEEDUP if has_speedup else SortKey.TIME
    ranked = _in_order([one for one in results if one.passed and _badness(one, key) is not None], key)
    chosen = {"worst": ranked[: view.worst or 0], "best": ranked[::-1][: view.best or 0]}
    return {
        f"the {word} {len(some)} of {len(ranked)} cases that passed, by {key}": some
        for word, some in chosen.items()
        if some
    }
