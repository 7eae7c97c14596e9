"""The A/A noise floor of a run: how far its cases' figures move when nothing changes, between processes and within."""

from __future__ import annotations

import math
from collections.abc import Sequence
from statistics import median, stdev
from typing import NamedTuple

import msgspec

from torchzoo import stats
from torchzoo.analysis.bound import Bound, bound_of
from torchzoo.analysis.cases import case_results
from torchzoo.analysis.findings import FAMILY_WISE_ERROR, LEAST_THRESHOLD
from torchzoo.analysis.moderation import moderated
from torchzoo.analysis.process_values import (
    compares_compile_time,
    shown_variant,
    times_over_eager,
    times_s,
)
from torchzoo.analysis.significance import LogRatio, processes_count
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
    """The noise of each measured case."""
    results = [result for result in case_results(run) if result.measured]
    values = [times_over_eager(result.measured) for result in results]
    tests = len(results) + sum(map(bool, values))
    tests += sum(compares_compile_time(result.case, result.measured) for result in results)
    over_eager = [_over_eager(sides[0]) if sides else None for sides in values]
    sharper = moderated(over_eager, [len(sides[0]) if sides else 0 for sides in values])
    return tuple(
        _noise(result.case, result.measured, ratio, tests=tests) for result, ratio in zip(results, sharper, strict=True)
    )


def _over_eager(processes: Sequence[Sequence[float]]) -> LogRatio | None:
    """The error of the time over eager's, between this run and another such run; None for a single process."""
    if len(processes) < 2:
        return None
    return _of_two_runs([math.log(stats.median_estimate(values).value) for values in processes])


def _of_two_runs(logs: Sequence[float]) -> LogRatio:
    """No difference between two runs whose processes differ as these do, with its error."""
    count = processes_count(len(logs), len(logs))
    return LogRatio(value=0.0, error=stdev(logs) / math.sqrt(count), degrees=2 * (len(logs) - 1), count=count)


def _noise(case: Case, measured: Sequence[Measured], over_eager: LogRatio | None, *, tests: int) -> Noise:
    """`tests`: how many a comparison with such a run makes. Holm's method divides the error rate among them."""
    own = [stats.latency_s(one.blocks, shown_variant(one)) for one in measured]
    widths = [estimate.relative_half_width for estimate in own if estimate.has_interval]
    between, floor, sees = None, None, None
    if len(own) > 1:
        logs = [math.log(estimate.value) for estimate in own]
        between, ratio = stdev(logs), _of_two_runs(logs)
        t = stats.t_quantile(stats.STATED_CONFIDENCE, len(own) - 1)
        floor = math.expm1(min(t * ratio.error, 700.0))
        sees = _sees(ratio, tests)
    bounds = [bound_of(one, shown_variant(one)) for one in measured]
    return Noise(
        case=case,
        latency_s=stats.processes_estimate(times_s(measured)).value,
        processes=len(own),
        between=between,
        floor=floor,
        within=median(widths) if widths else None,
        sees=sees,
        sees_over_eager=None if over_eager is None else _sees(over_eager, tests),
        bound=next((bound for bound in bounds if bound is not Bound.DEVICE), Bound.DEVICE),
        medians_s=tuple(estimate.value for estimate in own),
    )


def _sees(ratio: LogRatio, tests: int) -> float:
    """The least difference that a comparison finds, of as many tests, with such an error."""
    return max(LEAST_THRESHOLD, ratio.least_significant(FAMILY_WISE_ERROR / tests))
