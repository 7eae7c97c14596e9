"""When enough has been measured: the idea is nvbench's (github.com/NVIDIA/nvbench, its stopping criteria)."""

from __future__ import annotations

from collections.abc import Sequence

from torchzoo import stats
from torchzoo.case import Settings
from torchzoo.record import StopReason


def stop_reason(values: Sequence[float], *, samples: int, elapsed_s: float, settings: Settings) -> StopReason | None:
    """Why to stop now, or None to go on.

    Args:
        values: what the figure is the median of: block times (eager alone) or paired ratios, in the order measured.
        samples: steps timed so far, of the variant with the fewest.
        elapsed_s: since the pass began.
        settings: the limits.

    `converged`: the 95% interval's half-width is within the target. `stably_noisy`: the noise has settled, and by the
    time limit the half-width would still be twice the target (it shrinks with the square root of time).
    """
    limit_s = settings.time_limit_s
    enough = samples >= settings.min_samples and elapsed_s >= settings.min_time_s
    if enough:
        estimate = stats.median_estimate(values)
        reached = estimate.confidence >= 0.95
        if reached and estimate.relative_half_width <= settings.target_half_width:
            return StopReason.CONVERGED
        needed_s = elapsed_s * (estimate.relative_half_width / settings.target_half_width) ** 2
        if reached and elapsed_s >= limit_s / 3 and needed_s > 4 * limit_s and _is_stable(values):
            return StopReason.STABLY_NOISY
    return StopReason.TIME_LIMIT if elapsed_s >= limit_s else None


def _is_stable(values: Sequence[float]) -> bool:
    """Whether the spread over all values is within 10% of that over their first two thirds."""
    earlier = stats.relative_mad(values[: len(values) * 2 // 3])
    return abs(stats.relative_mad(values) - earlier) <= 0.1 * earlier
