"""The A/A noise floor of a run: how far its cases' figures move when nothing changes, between processes and within."""

from __future__ import annotations

import math
from collections.abc import Sequence
from statistics import median, stdev

import msgspec

from torchzoo import stats
from torchzoo.analysis.cases import case_results
from torchzoo.analysis.findings import is_device_bound, shown_variant, times_s
from torchzoo.case import Case
from torchzoo.record import Measured
from torchzoo.store import Run


class Noise(msgspec.Struct, frozen=True, kw_only=True):
    """Of one case; shares of its latency. What needs several processes is None where there is one."""

    case: Case
    latency_s: float
    processes: int
    between: float | None  # standard deviation of the processes' medians (of their logarithms)
    floor: float | None  # of the ratio of two runs of as many processes: what 95 in 100 stay below
    within: float | None  # half-width of a process's own interval, the median over processes; None for one sample
    is_device_bound: bool
    medians_s: tuple[float, ...]


def noise_of(run: Run) -> tuple[Noise, ...]:
    """The noise of each measured case."""
    return tuple(_noise(result.case, result.measured) for result in case_results(run) if result.measured)


def _noise(case: Case, measured: Sequence[Measured]) -> Noise:
    own = [stats.latency_s(one.blocks, shown_variant(one)) for one in measured]
    widths = [estimate.relative_half_width for estimate in own if estimate.count > 1]
    between, floor = None, None
    if len(own) > 1:
        between = stdev(math.log(estimate.value) for estimate in own)
        t = stats.t_quantile(stats.STATED_CONFIDENCE, len(own) - 1)
        floor = math.expm1(min(t * between * math.sqrt(2 / len(own)), 700.0))
    return Noise(
        case=case,
        latency_s=stats.processes_estimate(times_s(measured)).value,
        processes=len(own),
        between=between,
        floor=floor,
        within=median(widths) if widths else None,
        is_device_bound=all(map(is_device_bound, measured)),
        medians_s=tuple(estimate.value for estimate in own),
    )
