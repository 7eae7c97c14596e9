"""Sort the cases of a report from worst to best, or select the worst or best few."""

from __future__ import annotations

import enum
from collections.abc import Iterable

from torchzoo.analysis.cases import CaseResult
from torchzoo.analysis.frame import Better, figure


class SortKey(enum.StrEnum):
    """The key by which cases are sorted, worst first: the least speedup, the longest time, the most memory."""

    SPEEDUP = "speedup"
    TIME = "time"
    MEMORY = "memory"
    MODEL = "model"


_FIGURES = {SortKey.SPEEDUP: "speedup", SortKey.TIME: "latency_s", SortKey.MEMORY: "peak_bytes"}


def badness(result: CaseResult, key: SortKey) -> float | None:
    """The sort value of a case, higher for worse cases; None if the case lacks the figure."""
    ranked_by = figure(_FIGURES[key])
    value: float | None = ranked_by.number(result.measured_figures)
    return -value if value is not None and ranked_by.better is Better.MORE else value


def in_order(results: Iterable[CaseResult], key: SortKey) -> list[CaseResult]:
    """The cases, worst first, or by name for `MODEL`. Cases without the figure come last, in their order."""
    if key is SortKey.MODEL:
        return sorted(results, key=lambda result: result.case.model.lower())
    ranked, others = [], []
    for result in results:
        bad = badness(result, key)
        if bad is None:
            others.append(result)
        else:
            ranked.append((bad, result))
    return [*(result for _, result in sorted(ranked, key=lambda item: -item[0])), *others]


def default_key(results: Iterable[CaseResult]) -> SortKey:
    """The speedup if some case has one, else the time."""
    has_speedup = any(badness(result, SortKey.SPEEDUP) is not None for result in results)
    return SortKey.SPEEDUP if has_speedup else SortKey.TIME


def ranked(results: Iterable[CaseResult], key: SortKey) -> list[CaseResult]:
    """The cases that passed and have the figure, worst first. Figures of other cases can't be trusted."""
    return in_order((one for one in results if one.passed and badness(one, key) is not None), key)
