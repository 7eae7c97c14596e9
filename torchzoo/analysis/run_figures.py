"""Compute the figures of one case in one run, which comparisons judge and the history keeps."""

from __future__ import annotations

import enum
import math
from collections.abc import Iterable, Sequence
from statistics import NormalDist, fmean, median
from typing import Any

import msgspec

from torchzoo import stats
from torchzoo.analysis.bound import Bound, bound_of, host_times_s
from torchzoo.analysis.frame import Figure, Unit, figure
from torchzoo.analysis.throttling import was_shared
from torchzoo.case import EAGER, Case
from torchzoo.record import CANDIDATE_VARIANT, EAGER_VARIANT, Measured
from torchzoo.settings import CacheMode


class Metric(enum.StrEnum):
    """A figure that comparisons judge and the history keeps: less of it is better."""

    LATENCY = "latency"  # of a synchronised step of the candidate, or of eager alone
    OVER_EAGER = "time_over_eager"  # the candidate's time over eager's, in turns: 1 / speedup
    DEVICE_TIME = "device_time"  # in which the device works in a step; the host's speed does not change it
    HOST_TIME = "host_time"  # the host's work for a step, in seconds of the reference host
    DEVICE_MEMORY = "device_memory"
    HOST_MEMORY = "host_memory"
    COMPILE_TIME = "compile_time"  # for backends that compile
    OPERATORS = "operators"  # counts of what a step asks of the host: equal on all machines
    PYTHON_CALLS = "python_calls"
    LAUNCHES = "launches"
    ALLOCATIONS = "allocations"

    @property
    def figure(self) -> Figure:
        return figure(_FIGURES[self])

    @property
    def unit(self) -> Unit:
        return self.figure.unit

    @property
    def is_time(self) -> bool:
        """Whether the figure has noise, so that a test decides. Memory and counts hardly vary."""
        return self.unit not in (Unit.BYTES, Unit.COUNT)


#: What a step asks of the host.
COUNTS = (Metric.OPERATORS, Metric.PYTHON_CALLS, Metric.LAUNCHES, Metric.ALLOCATIONS)

#: What does not depend on the host's speed, so that runs of unlike hosts can be compared in it.
REPRODUCIBLE = (Metric.DEVICE_TIME, Metric.HOST_TIME, *COUNTS)

_FIGURES = {
    Metric.LATENCY: "latency_s",
    Metric.OVER_EAGER: "time_ratio",
    Metric.DEVICE_TIME: "device_s",
    Metric.HOST_TIME: "host_s",
    Metric.DEVICE_MEMORY: "device_peak_allocated_bytes",
    Metric.HOST_MEMORY: "host_peak_rss_bytes",
    Metric.COMPILE_TIME: "first_step_cpu_s",
    **{metric: metric.value for metric in COUNTS},
}


class RunFigure(msgspec.Struct, frozen=True, kw_only=True):
    """The value of a metric of a case in a run: seconds, bytes or a ratio. Only equal `basis` can be compared.

    For a time, `low` and `high` are its interval at `confidence`; for memory and counts, the least and the most of the
    processes.
    """

    metric: Metric
    basis: str = ""  # compile time: what the caches held; host memory: whether the peak is of the memory pass
    value: float
    low: float
    high: float
    confidence: float = 0.0
    processes: tuple[float, ...]  # the median of each process
    log_error: float | None = None  # standard error of the logarithm; None: several processes, or one sample
    is_device_bound: bool = False  # whether the device bounds the step of each process
    host_loop_s: float | None = None  # the host's speed: seconds of a loop of plain Python; None: not recorded
    always_shared: bool = False  # whether others used the device, or had it open, during all processes
    eager_s: float | None = None  # time over eager's: the time of eager's step


def run_figures(case: Case, processes: Sequence[Measured]) -> list[RunFigure]:
    """The figures of a case, from the processes that measured it: at most one for each metric, in their order."""
    if not processes:
        return []
    times = times_s(processes)
    found = [
        _of_step(Metric.LATENCY, processes, times) if all(times) else None,
        _over_eager(processes),
        _device_time(processes),
        _host_time(processes),
        _memory(processes, Metric.DEVICE_MEMORY),
        _memory(processes, Metric.HOST_MEMORY),
        None if case.backend == EAGER else _compile_time(processes),
        *(_count(processes, metric) for metric in COUNTS),
    ]
    return [figure for figure in found if figure is not None]


def shown_variant(measured: Measured) -> str:
    """The variant whose figures represent the case: the candidate, or eager if there is no candidate."""
    return CANDIDATE_VARIANT if CANDIDATE_VARIANT in measured.variants else EAGER_VARIANT


def times_s(processes: Iterable[Measured]) -> list[list[float]]:
    """The mean step time in seconds of each block of the shown variant, by process."""
    return [stats.block_times_s(measured.blocks, shown_variant(measured)) for measured in processes]


def log_error(values: Sequence[float]) -> float | None:
    """The standard error of the logarithm of one process's median, from its interval. None for a single value."""
    own = stats.median_estimate(values)
    if own.count < 2:
        return None
    return math.log(own.high / own.low) / (2 * NormalDist().inv_cdf((1 + own.confidence) / 2))


def _over_eager(processes: Sequence[Measured]) -> RunFigure | None:
    if any(CANDIDATE_VARIANT not in one.variants for one in processes):
        return None
    values = [[1 / ratio for ratio in stats.quad_ratios(one.blocks)] for one in processes]
    if not all(values):
        return None
    eager_s = stats.processes_value([median(stats.block_times_s(one.blocks, EAGER_VARIANT)) for one in processes])
    return _of_step(Metric.OVER_EAGER, processes, values, eager_s)


def _of_step(
    metric: Metric, processes: Sequence[Measured], values: Sequence[Sequence[float]], eager_s: float | None = None
) -> RunFigure:
    return _time(
        metric,
        processes,
        values,
        log_error=log_error(values[0]) if len(values) == 1 else None,
        is_device_bound=all(bound_of(one, shown_variant(one)) is Bound.DEVICE for one in processes),
        always_shared=all(map(was_shared, processes)),
        eager_s=eager_s,
    )


def _time(metric: Metric, processes: Sequence[Measured], values: Sequence[Sequence[float]], **more: Any) -> RunFigure:
    estimate = stats.processes_estimate(values)
    return RunFigure(
        metric=metric,
        value=estimate.value,
        low=estimate.low,
        high=estimate.high,
        confidence=estimate.confidence,
        processes=tuple(map(median, values)),
        host_loop_s=_host_loop_s(processes),
        **more,
    )


def _compile_time(processes: Sequence[Measured]) -> RunFigure | None:
    results = [one.variants[CANDIDATE_VARIANT] for one in processes]
    compiled = [one.compilation for one in results if one.compilation is not None]
    caches, values = {one.cache for one in compiled}, [one.first_step_cpu_s for one in results]
    cache = caches.pop() if len(caches) == 1 else None
    if cache in (None, CacheMode.SHARED) or any(one.traced for one in compiled) or min(values) <= 0:
        return None  # shared caches may hold other parts; writing a trace takes time; an unreadable time is 0
    own = [[value] for value in values]
    error = 0.0 if len(values) == 1 else None
    return _time(Metric.COMPILE_TIME, processes, own, basis=cache.value, log_error=error)


def _device_time(processes: Sequence[Measured]) -> RunFigure | None:
    values = [one.variants[shown_variant(one)].device_active_s for one in processes]
    known = [value for value in values if value]
    if not known or len(known) < len(values):
        return None
    estimate = stats.processes_estimate([[value] for value in known])
    return RunFigure(
        metric=Metric.DEVICE_TIME,
        value=estimate.value,
        low=estimate.low,
        high=estimate.high,
        confidence=estimate.confidence,
        processes=tuple(known),
        log_error=0.0 if len(known) == 1 else None,
        is_device_bound=True,
        always_shared=all(map(was_shared, processes)),
    )


def _host_time(processes: Sequence[Measured]) -> RunFigure | None:
    values = [host_times_s(one, shown_variant(one)) for one in processes]
    if not all(values):
        return None
    figure = _of_step(Metric.HOST_TIME, processes, values)
    return msgspec.structs.replace(figure, is_device_bound=False, host_loop_s=None)


def _count(processes: Sequence[Measured], metric: Metric) -> RunFigure | None:
    counts = [one.variants[shown_variant(one)].counts for one in processes]
    values = [getattr(one, metric) for one in counts if one is not None]
    return _ranged(metric, [float(value) for value in values if value])


def _ranged(metric: Metric, values: Sequence[float], basis: str = "") -> RunFigure | None:
    if not values:
        return None
    return RunFigure(
        metric=metric, basis=basis, value=median(values), low=min(values), high=max(values), processes=tuple(values)
    )


def _memory(processes: Sequence[Measured], metric: Metric) -> RunFigure | None:
    memories = [one.variants[shown_variant(one)].memory for one in processes]
    is_host = metric is Metric.HOST_MEMORY
    peaks = [one.host_peak_rss_bytes if is_host else one.device_peak_allocated_bytes for one in memories]
    values = [float(peak) for peak in peaks if peak]
    of_pass = {one.host_peak_is_of_pass for one in memories}
    if is_host and len(of_pass) > 1:
        return None
    return _ranged(metric, values, ("of the memory pass" if of_pass.pop() else "of the process") if is_host else "")


def _host_loop_s(processes: Sequence[Measured]) -> float | None:
    """The median of the host's loop during the timed blocks if all processes have it, else before and after them."""
    looks_s = [median(one.host.looks_s) for one in processes if one.host is not None and one.host.looks_s]
    if len(looks_s) < len(processes):
        looks_s = [fmean(one.host_loop_s) for one in processes if one.host_loop_s]
    return median(looks_s) if looks_s else None
