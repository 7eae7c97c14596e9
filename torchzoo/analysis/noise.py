"""The A/A noise floor of a run: how far its cases' figures move when nothing changes, between processes and within."""

from __future__ import annotations

import math
from collections.abc import Sequence
from statistics import median, stdev

import msgspec

from torchzoo import stats
from torchzoo.analysis.bound import Bound, bound_of
from torchzoo.analysis.cases import case_results
from torchzoo.analysis.findings import (
    FAMILY_WISE_ERROR,
    LEAST_THRESHOLD,
    compares_compile_time,
    shown_variant,
    times_s,
)
from torchzoo.analysis.significance import LogRatio
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
    sees: float | None  # the least difference of the latency that a comparison with such a run would find
    bound: Bound | None  # what bounds the shown variant's step; of several processes, the first that is not the device
    medians_s: tuple[float, ...]

    @property
    def is_device_bound(self) -> bool:
        return self.bound is Bound.DEVICE


def noise_of(run: Run) -> tuple[Noise, ...]:
    """The noise of each measured case."""
    results = [result for result in case_results(run) if result.measured]
    tests = len(results) + sum(compares_compile_time(result.case, result.measured) for result in results)
    return tuple(_noise(result.case, result.measured, tests=tests) for result in results)


def _noise(case: Case, measured: Sequence[Measured], *, tests: int) -> Noise:
    """`tests`: how many a comparison with such a run makes. Holm's method divides the error rate among them."""
    own = [stats.latency_s(one.blocks, shown_variant(one)) for one in measured]
    widths = [estimate.relative_half_width for estimate in own if estimate.count > 1]
    between, floor, sees = None, None, None
    if len(own) > 1:
        between = stdev(math.log(estimate.value) for estimate in own)
        t = stats.t_quantile(stats.STATED_CONFIDENCE, len(own) - 1)
        error = between * math.sqrt(2 / len(own))
        floor = math.expm1(min(t * error, 700.0))
        ratio = LogRatio(value=0.0, error=error, degrees=2 * (len(own) - 1))
        sees = max(LEAST_THRESHOLD, ratio.least_significant(FAMILY_WISE_ERROR / tests))
    bounds = [bound_of(one, shown_variant(one)) for one in measured]
    return Noise(
        case=case,
        latency_s=stats.processes_estimate(times_s(measured)).value,
        processes=len(own),
        between=between,
        floor=floor,
        within=median(widths) if widths else None,
        sees=sees,
        bound=next((bound for bound in bounds if bound is not Bound.DEVICE), Bound.DEVICE),
        medians_s=tuple(estimate.value for estimate in own),
    )
