"""The parts of a profiled step: its wall time, and the kernels (on the CPU: operators) that took longest."""

from __future__ import annotations

from statistics import median

import msgspec

from torchzoo import stats
from torchzoo.record import Breakdown


class KernelShare(msgspec.Struct, frozen=True, kw_only=True):
    """A kernel in the profiled steps."""

    name: str
    calls_per_step: float
    per_step_s: float
    share: float  # of the wall time of all profiled steps


def profiled_step_s(breakdown: Breakdown | None) -> float | None:
    """The median wall time of a profiled step; None without profiled steps."""
    return median(step.wall_s for step in breakdown.steps) if breakdown is not None and breakdown.steps else None


def busy_s(breakdown: Breakdown | None) -> stats.Estimate | None:
    """The median time in which the device works in a step (on the CPU: operators run); None if it is not known."""
    if breakdown is None or not breakdown.steps:
        return None
    return stats.median_estimate([step.active_s + step.movement_s + step.communication_s for step in breakdown.steps])


def busy_ratio(breakdown: Breakdown | None, other: Breakdown | None) -> stats.Estimate | None:
    """The time in which the device works in a step, over that of another breakdown; None if it is not known."""
    own_s, other_s = busy_s(breakdown), busy_s(other)
    if own_s is None or other_s is None or min(own_s.low, other_s.low) <= 0:
        return None
    return stats.quotient(own_s, other_s)


def longest_kernels(breakdown: Breakdown, most: int) -> list[KernelShare]:
    """Return the kernels that took longest, at most `most`; none without profiled steps."""
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


def short_name(name: str, width: int = 56) -> str:
    """Return a kernel's name without its result type, cut to the width."""
    name = name.removeprefix("void ")
    return name if len(name) <= width else name[: width - 1] + "…"
