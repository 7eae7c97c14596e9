"""The cases of a report in another order: the worst first, or the few that are worst or best."""

from __future__ import annotations

import enum
from collections.abc import Iterable

from torchzoo.analysis.cases import CaseResult
from torchzoo.analysis.frame import Better, figure


class SortKey(enum.StrEnum):
    """What cases are sorted by. The worst comes first: the least speedup, the longest time, the most memory."""

    SPEEDUP = "speedup"
    TIME = "time"
    MEMORY = "memory"
    MODEL = "model"


_FIGURES = {SortKey.SPEEDUP: "speedup", SortKey.TIME: "latency_s", SortKey.MEMORY: "peak_bytes"}


def badness(result: CaseResult, key: SortKey) -> float | None:
    """The higher, the worse; None where the case has no such figure."""
    ranked_by = figure(_FIGURES[key])
    value: float | None = ranked_by.number(result.measured_figures)
    return -value if value is not None and ranked_by.better is Better.MORE else value


def in_order(results: Iterable[CaseResult], key: SortKey) -> list[CaseResult]:
    """The worst first; by name for `MODEL`. Cases without such a figure come last, in the order that they had."""
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
    """The cases that passed and have such a figure, the worst first. No figure of another case can be trusted."""
    return in_order((one for one in results if one.passed and badness(one, key) is not None), key)
