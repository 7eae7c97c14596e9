"""When enough has been measured. The idea is that of nvbench's stopping criteria (github.com/NVIDIA/nvbench)."""

from __future__ import annotations

from collections.abc import Sequence

from torchzoo import stats
from torchzoo.record import StopReason
from torchzoo.settings import Settings


def stop_reason(values: Sequence[float], *, samples: int, elapsed_s: float, settings: Settings) -> StopReason | None:
    """The reason to stop now, or None to go on.

    - `converged`: the half-width of the 95% interval is within the target.
    - `stably_noisy`: the spread no longer changes, and at the time limit the half-width would still be more than twice
      the target (it shrinks with the square root of time).
    - `time_limit`: the time is over.

    The least time is that of the settings, or half of the limit where that is shorter.

    Args:
        values: the measured figure is their median: block times (eager alone) or paired ratios, as they were measured.
        samples: steps timed so far, of the variant that has fewest.
        elapsed_s: since the pass began.
        settings: the limits.
    """
    limit_s = settings.time_limit_s
    enough = samples >= settings.min_samples and elapsed_s >= min(settings.min_time_s, limit_s / 2)
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
