"""The figures of one case in one run, small enough to keep for a thousand nights; and what they say of two versions.

The metrics and verdicts are those of `analysis.findings`. Only what they are made from differs: there it is the samples
of two runs, here a few numbers of each of several runs.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from statistics import median

import msgspec

from torchzoo import stats
from torchzoo.analysis.allowances import host_allowance, sharing_allowance
from torchzoo.analysis.cases import CaseResult
from torchzoo.analysis.findings import (
    ASSUMED_SPREAD,
    ASSUMED_SPREAD_DEVICE_BOUND,
    ASSUMED_SPREAD_OVER_EAGER,
    Finding,
    Metric,
    Tested,
    how_sure,
    judge_memory,
    judge_times,
)
from torchzoo.analysis.process_values import (
    compile_cache,
    compile_times_s,
    host_loops_s,
    is_device_bound,
    memory_bytes,
    peak_is_of_pass,
    times_over_eager,
    times_s,
)
from torchzoo.analysis.significance import LogRatio, log_error, log_ratio
from torchzoo.analysis.throttling import always_shared
from torchzoo.case import EAGER, Case
from torchzoo.stats import Estimate

_MEMORY = (Metric.DEVICE_MEMORY, Metric.HOST_MEMORY)


class RunFigure(msgspec.Struct, frozen=True, kw_only=True):
    """One metric of one case in one run: seconds, bytes or a ratio. Figures of another `basis` are not comparable.

    Of a time, `low` and `high` are its interval at `confidence`; of a memory, the least and the most of the processes.
    """

    metric: Metric
    basis: str = ""  # of compile times: what the caches held; of host memory: whether the peak is that of the pass
    value: float
    low: float
    high: float
    confidence: float = 0.0
    processes: tuple[float, ...]  # the median of each process
    log_error: float | None = (
        None  # within the process, of the logarithm of the value; None: several processes, or one sample
    )
    assumed_spread: float = 0.0  # between processes (of the logarithm), where there is one process on each side
    host_loop_s: float | None = None  # the host's own speed; None where it was not recorded or does not matter
    host_matters: bool = False  # whether the host's speed changes the figure
    always_shared: bool = False  # whether others used the device, or had it open, in all of its processes


#: A case with a metric, and its figures in the runs of the base and of the candidate. All have the same basis.
FigurePair = tuple[Case, Metric, Sequence[RunFigure], Sequence[RunFigure]]


def run_figures(result: CaseResult) -> list[RunFigure]:
    """The figures of a case; none unless it passed, since others stand in no series."""
    if not result.passed:
        return []
    makers: tuple[Callable[[CaseResult], RunFigure | None], ...] = (_latency, _over_eager, _compile_time)
    found = [make(result) for make in makers] + [_memory(result, metric) for metric in _MEMORY]
    return [figure for figure in found if figure is not None]


def _latency(result: CaseResult) -> RunFigure | None:
    values = times_s(result.measured)
    if not all(values):
        return None
    is_bound = all(map(is_device_bound, result.measured))
    return _time(
        Metric.LATENCY,
        stats.processes_estimate(values),
        [stats.median_estimate(one).value for one in values],
        log_error=log_error(values[0]) if len(values) == 1 else None,
        assumed_spread=ASSUMED_SPREAD_DEVICE_BOUND if is_bound else ASSUMED_SPREAD,
        host_loop_s=_host_loop_s(result),
        host_matters=not is_bound,
        always_shared=always_shared(result.measured),
    )


def _over_eager(result: CaseResult) -> RunFigure | None:
    found = times_over_eager(result.measured)
    if not found:
        return None
    (values,) = found
    return _time(
        Metric.OVER_EAGER,
        stats.processes_estimate(values),
        [stats.median_estimate(one).value for one in values],
        log_error=log_error(values[0]) if len(values) == 1 else None,
        assumed_spread=ASSUMED_SPREAD_OVER_EAGER,
        host_loop_s=_host_loop_s(result),
        host_matters=False,
        always_shared=always_shared(result.measured),
    )


def _compile_time(result: CaseResult) -> RunFigure | None:
    if result.case.backend == EAGER:
        return None
    cache, values = compile_cache(result.measured), compile_times_s(result.measured)
    if cache is None or not values:
        return None
    return _time(
        Metric.COMPILE_TIME,
        stats.processes_estimate([[value] for value in values]),
        values,
        basis=cache.value,
        log_error=0.0 if len(values) == 1 else None,
        assumed_spread=ASSUMED_SPREAD,
        host_loop_s=_host_loop_s(result),
        host_matters=True,
    )


def _time(
    metric: Metric,
    estimate: Estimate,
    processes: Sequence[float],
    *,
    basis: str = "",
    log_error: float | None,
    assumed_spread: float,
    host_loop_s: float | None,
    host_matters: bool,
    always_shared: bool = False,
) -> RunFigure:
    return RunFigure(
        metric=metric,
        basis=basis,
        value=estimate.value,
        low=estimate.low,
        high=estimate.high,
        confidence=estimate.confidence,
        processes=tuple(processes),
        log_error=log_error,
        assumed_spread=assumed_spread,
        host_loop_s=host_loop_s,
        host_matters=host_matters,
        always_shared=always_shared,
    )


def _memory(result: CaseResult, metric: Metric) -> RunFigure | None:
    values = memory_bytes(result.measured, on_device=metric is Metric.DEVICE_MEMORY)
    basis = ""
    if metric is Metric.HOST_MEMORY:
        kinds = {peak_is_of_pass(one) for one in result.measured}
        if len(kinds) > 1:
            return None
        basis = "of the memory pass" if kinds.pop() else "of the process"
    if not values:
        return None
    return RunFigure(
        metric=metric,
        basis=basis,
        value=float(median(values)),
        low=float(min(values)),
        high=float(max(values)),
        processes=tuple(map(float, values)),
    )


def _host_loop_s(result: CaseResult) -> float | None:
    (loops_s,) = host_loops_s(result.measured)
    return median(loops_s) if loops_s else None


def judge_figures(pairs: Sequence[FigurePair], threshold: float | None = None) -> list[Finding]:
    """A finding for each pair, in their order, as `torchzoo compare` gives them: Holm's method is over all of them.

    If each side is one run, its processes are compared. If there are more runs, each run counts as one value: what
    differs between nights is then part of the error.

    Args:
        pairs: cases and metrics that both sides have.
        threshold: the least difference that matters: 0.07 for 7%; None: what each case's noise allows.
    """
    tested = [_tested(*pair) for pair in pairs if pair[1] not in _MEMORY]
    times = iter(judge_times(tested, threshold))
    return [
        judge_memory(case, metric, *_values(base, candidate), threshold) if metric in _MEMORY else next(times)
        for case, metric, base, candidate in pairs
    ]


def _values(base: Sequence[RunFigure], candidate: Sequence[RunFigure]) -> tuple[list[float], list[float]]:
    if len(base) == len(candidate) == 1:
        return list(base[0].processes), list(candidate[0].processes)
    return [one.value for one in base], [one.value for one in candidate]


def _tested(case: Case, metric: Metric, base: Sequence[RunFigure], candidate: Sequence[RunFigure]) -> Tested:
    sides = _values(base, candidate)
    figures = (*base, *candidate)
    spread = max(one.assumed_spread for one in figures)
    values = [[[value] for value in side] for side in sides]
    if len(sides[0]) == len(sides[1]) == 1:
        ratio = _of_single_processes(base[0], candidate[0], spread)
    else:
        ratio = log_ratio(*values, assumed_spread=spread)
    allowance, remark = 0.0, ""
    if ratio is not None and any(one.host_matters for one in figures):
        loops_s = [[one.host_loop_s for one in side if one.host_loop_s is not None] for side in (base, candidate)]
        allowance, remark = host_allowance(ratio.value, *loops_s)
    by_others, sharing = sharing_allowance(
        base=all(one.always_shared for one in base), candidate=all(one.always_shared for one in candidate)
    )
    return Tested(
        case=case,
        metric=metric,
        of="processes" if len(base) == len(candidate) == 1 else "runs",
        base=values[0],
        candidate=values[1],
        ratio=ratio,
        allowance=allowance + by_others,
        remarks=tuple(filter(None, (remark, sharing, how_sure(ratio, spread)))),
    )


def _of_single_processes(base: RunFigure, candidate: RunFigure, spread: float) -> LogRatio | None:
    if base.log_error is None or candidate.log_error is None:
        return None
    error = math.sqrt(2 * spread**2 + base.log_error**2 + candidate.log_error**2)
    return LogRatio(value=math.log(candidate.value / base.value), error=error, degrees=None)
