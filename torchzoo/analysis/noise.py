"""The A/A noise floor of a run: how far its cases' figures move when nothing changes, between processes and within."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from statistics import median, stdev
from typing import NamedTuple

import msgspec

from torchzoo import stats
from torchzoo.analysis.bound import Bound, bound_of
from torchzoo.analysis.cases import case_results
from torchzoo.analysis.judge import judge, pairs_of
from torchzoo.analysis.run_figures import Metric, run_figures, shown_variant, times_s
from torchzoo.case import Case
from torchzoo.record import CANDIDATE_VARIANT, EAGER_VARIANT, Measured
from torchzoo.settings import Settings
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
    sees_over_eager: float | None  # the same of the time over eager's; None where it is not compared
    bound: Bound | None  # what bounds the shown variant's step; of several processes, the first that is not the device
    medians_s: tuple[float, ...]

    @property
    def is_device_bound(self) -> bool:
        return self.bound is Bound.DEVICE


#: With fewer rounds than this no interval holds at 95%; more than so many times the rounds are not proposed.
ROUNDS_FOR_95, MOST_MORE = 6, 4


class MoreTime(NamedTuple):
    """What one process timed, and how narrow its interval would be, about, with another time limit."""

    rounds: int
    took_s: float
    limit_s: float
    half_width: float  # relative to the figure


def more_time(measured: Measured) -> MoreTime | None:
    """The time limit that would narrow the interval to the target, or by half; None for a single round."""
    is_paired = CANDIDATE_VARIANT in measured.variants
    values = stats.quad_ratios(measured.blocks) if is_paired else stats.block_times_s(measured.blocks, EAGER_VARIANT)
    if len(values) < 2:
        return None
    took_s = sum(sum(block.samples_s) for block in measured.blocks)
    enough = (stats.expected_half_width(values, 1) / Settings().target_half_width) ** 2
    rounds = max(ROUNDS_FOR_95, min(math.ceil(enough), MOST_MORE * len(values)))
    limit_s = took_s / len(values) * rounds
    unit_s = 10 ** (math.floor(math.log10(limit_s)) - 1)  # two digits
    return MoreTime(
        rounds=len(values),
        took_s=took_s,
        limit_s=math.ceil(limit_s / unit_s) * unit_s,
        half_width=stats.expected_half_width(values, rounds),
    )


def noise_of(run: Run) -> tuple[Noise, ...]:
    """The noise of each measured case, from the run compared with itself."""
    results = [result for result in case_results(run) if result.measured]
    figures = {result.case: run_figures(result.case, result.measured) for result in results}
    findings = judge([pair for case, some in figures.items() for pair in pairs_of(case, some, some)])
    sees = {(one.case, one.metric): one.sees for one in findings if one.base_processes > 1}
    return tuple(_noise(result.case, result.measured, sees) for result in results)


def _noise(case: Case, measured: Sequence[Measured], sees: Mapping[tuple[Case, Metric], float | None]) -> Noise:
    own = [stats.latency_s(one.blocks, shown_variant(one)) for one in measured]
    widths = [estimate.relative_half_width for estimate in own if estimate.has_interval]
    between, floor = None, None
    if len(own) > 1:
        between = stdev(math.log(estimate.value) for estimate in own)
        t = stats.t_quantile(stats.STATED_CONFIDENCE, len(own) - 1)
        floor = math.expm1(min(t * between * math.sqrt(2 / len(own)), 700.0))
    bounds = [bound_of(one, shown_variant(one)) for one in measured]
    return Noise(
        case=case,
        latency_s=stats.processes_estimate(times_s(measured)).value,
        processes=len(own),
        between=between,
        floor=floor,
        within=median(widths) if widths else None,
        sees=sees.get((case, Metric.LATENCY)),
        sees_over_eager=sees.get((case, Metric.OVER_EAGER)),
        bound=next((bound for bound in bounds if bound is not Bound.DEVICE), Bound.DEVICE),
        medians_s=tuple(estimate.value for estimate in own),
    )
