"""What a profiled step consists of: its wall time, and the kernels (on the CPU: operators) that took longest."""

from __future__ import annotations

from statistics import median

import msgspec

from torchzoo.record import Breakdown


class KernelShare(msgspec.Struct, frozen=True, kw_only=True):
    """One kernel in the profiled steps."""

    name: str
    calls_per_step: float
    share: float  # of the wall time of all profiled steps


def profiled_step_s(breakdown: Breakdown | None) -> float | None:
    """The median wall time of a profiled step; None if there is none."""
    return median(step.wall_s for step in breakdown.steps) if breakdown is not None and breakdown.steps else None


def longest_kernels(breakdown: Breakdown, most: int) -> list[KernelShare]:
    """Those that took longest, at most so many; none without profiled steps."""
    if not breakdown.steps:
        return []
    steps, wall_s = len(breakdown.steps), sum(step.wall_s for step in breakdown.steps)
    return [
        KernelShare(name=kernel.name, calls_per_step=kernel.calls / steps, share=kernel.total_s / wall_s)
        for kernel in breakdown.kernels[:most]
    ]
