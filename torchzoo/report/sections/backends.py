"""Models x backends: one figure of eager for each case, and the speedup of each backend over the eager beside it."""

from __future__ import annotations

from collections.abc import Sequence

from torchzoo.analysis.beside_eager import BesideEager, beside_eager, has_several_backends
from torchzoo.analysis.cases import CaseResult
from torchzoo.report import units
from torchzoo.report.document import Block, table
from torchzoo.stats import Estimate

EXPLAINED = "Each speedup is over the eager that took turns with the backend in the same process."


def blocks(results: Sequence[CaseResult]) -> list[Block]:
    """A row for each case; nothing where no case has several backends."""
    if not has_several_backends(results):
        return []
    found = beside_eager(results)
    names = list(dict.fromkeys(name for one in found for name in one.backends))
    return [table(("case", "eager", *names), (_cells(one, names) for one in found), notes=[EXPLAINED])]


def notes(results: Sequence[CaseResult]) -> list[str]:
    """How many cases have figures of eager that disagree, and those of the one where they differ most."""
    found = beside_eager(results)
    disagreeing = [one for one in found if one.disagrees]
    if not disagreeing:
        return []
    worst = max(disagreeing, key=lambda one: _high(one).value / _low(one).value)
    return [
        f"eager's own figures disagree beyond their intervals in {len(disagreeing)} of {len(found)} cases, most in "
        f"{worst.case.label()}: {units.latency(_low(worst))} and {units.latency(_high(worst))}"
    ]


def _low(one: BesideEager) -> Estimate:
    return min((each for each in one.eagers if each.has_interval), key=lambda each: each.high)


def _high(one: BesideEager) -> Estimate:
    return max((each for each in one.eagers if each.has_interval), key=lambda each: each.low)


def _cells(one: BesideEager, backends: Sequence[str]) -> list[str]:
    eager = "" if one.eager is None else units.latency(one.eager)
    speedups = [_speedup(one.backends[name]) if name in one.backends else "" for name in backends]
    return [one.case.label(), eager, *speedups]


def _speedup(result: CaseResult) -> str:
    """`1.32x [1.30, 1.34]`, with the status where it is in no mean; the status of a case without one."""
    figures = result.figures
    if figures is None or figures.speedup is None:
        return str(result.status)
    return units.speedup(figures.speedup) + ("" if result.passed else f", {result.status}")
