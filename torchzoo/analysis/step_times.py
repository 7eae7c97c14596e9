"""Collect the times of a case's single steps, for a chart of their distribution."""

from __future__ import annotations

import msgspec

from torchzoo.analysis.cases import CaseResult
from torchzoo.record import CANDIDATE_VARIANT, EAGER_VARIANT


class StepTimes(msgspec.Struct, frozen=True, kw_only=True):
    """The timed steps of one variant, over all processes that measured the case."""

    count: int
    shown_ms: tuple[float, ...]  # in the order of execution: all, or evenly spaced ones if there are too many
    quartiles_ms: tuple[float, ...]  # least, lower quartile, median, upper quartile and most, over all steps


def steps_s(result: CaseResult) -> dict[str, list[float]]:
    """All timed steps by variant, in the order of execution, over all processes that measured the case."""
    found: dict[str, list[float]] = {}
    for measured in result.measured:
        for block in measured.blocks:
            found.setdefault(block.variant, []).extend(block.samples_s)
    return {variant: found[variant] for variant in (EAGER_VARIANT, CANDIDATE_VARIANT) if found.get(variant)}


def step_times(result: CaseResult, most: int) -> dict[str, StepTimes]:
    """The step times by variant, with at most `most` times to show."""
    import numpy as np

    found = {}
    for variant, each_s in steps_s(result).items():
        steps_ms = 1e3 * np.array(each_s)
        shown_ms = steps_ms
        if len(steps_ms) > most:
            shown_ms = steps_ms[np.linspace(0, len(steps_ms) - 1, most).round().astype(int)]
        found[variant] = StepTimes(
            count=len(steps_ms),
            shown_ms=tuple(shown_ms.tolist()),
            quartiles_ms=tuple(np.quantile(steps_ms, [0, 0.25, 0.5, 0.75, 1]).tolist()),
        )
    return found
