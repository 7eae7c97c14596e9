"""A judge of a bisection that measures nothing."""

from __future__ import annotations

from collections.abc import Collection, Sequence

import msgspec

from torchzoo.history.bisection import Standing
from torchzoo.history.culprits import Evidence, Judgement
from torchzoo.stats import Estimate


class FakeJudge:
    """A judge that knows how long the step of each version takes: 1, and more from each culprit on."""

    def __init__(self, steps: dict[int, float], *, needed: int = 1, broken: Collection[int] = ()) -> None:
        self.steps = steps
        self.needed = needed  # the effort from which a verdict is not inconclusive
        self.broken = broken
        self.asks: list[tuple[str, Judgement]] = []
        self.dies_at = 10**9

    def time_s(self, spec: str) -> float:
        number, total = int(spec.rpartition(".")[2]), 1.0
        for culprit, factor in self.steps.items():
            total *= factor if number >= culprit else 1.0
        return total

    def judge(self, good: str, asks: Sequence[Judgement]) -> list[Evidence]:
        return [self.one(good, ask) for ask in asks]

    def runs(self, *_: object) -> None:
        """No runs are kept."""

    def one(self, good: str, ask: Judgement) -> Evidence:
        if len(self.asks) == self.dies_at:
            raise KeyboardInterrupt
        self.asks.append((good, ask))
        if int(ask.midpoint.rpartition(".")[2]) in self.broken:
            return Evidence(verdict=Standing.SKIPPED, reason="the model fails")
        value = self.time_s(ask.midpoint) / self.time_s(good)
        ratio = Estimate(value=value, low=value - 0.02, high=value + 0.02, confidence=0.95, count=5)
        if ask.effort < self.needed:
            return Evidence(verdict=Standing.INCONCLUSIVE, ratio=msgspec.structs.replace(ratio, high=float("inf")))
        return Evidence(verdict=Standing.BAD if value > 1.07 else Standing.GOOD, ratio=ratio)
