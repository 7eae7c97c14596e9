"""What a profiled step consists of: its wall time, and the kernels (on the CPU: operators) that took longest."""

from __future__ import annotations

from statistics import median

import msgspec

from torchzoo import stats
from torchzoo.record import Breakdown


class KernelShare(msgspec.Struct, frozen=True, kw_only=True):
    """One kernel in the profiled steps."""

    name: str
    calls_per_step: float
    per_step_s: float
    share: float  # of the wall time of all profiled steps


def profiled_step_s(breakdown: Breakdown | None) -> float | None:
    """The median wall time of a profiled step; None if there is none."""
    return median(step.wall_s for step in breakdown.steps) if breakdown is not None and breakdown.steps else None


def busy_s(breakdown: Breakdown | None) -> stats.Estimate | None:
    """How long the device works in a step, the median (on the CPU: how long operators run); None if it is not known."""
    if breakdown is None or not breakdown.steps:
        return None
    return stats.median_estimate([step.active_s + step.movement_s + step.communication_s for step in breakdown.steps])


def longest_kernels(breakdown: Breakdown, most: int) -> list[KernelShare]:
    """Those that took longest, at most so many; none without profiled steps."""
    if not breakdown.steps:
        return []
    steps, wall_s = len(breakdown.steps), sum(step.wall_s for step in breakdown.steps)
    return [
        KernelShare(
            name=kernel.name,
            calls_per_step=kernel.calls / steps,
            per_step_s=kernel.total_s / steps,
            share=kernel.total_s / wall_s,
        )
        for kernel in breakdown.kernels[:most]
    ]
