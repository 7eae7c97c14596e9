"""The figures of a case, from the raw samples of the processes that measured it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from statistics import median
from typing import NamedTuple

import msgspec

from torchzoo import stats
from torchzoo.analysis.bound import REFERENCE_HOST_S, StepModel, device_share, host_times_s, step_model
from torchzoo.record import CANDIDATE_VARIANT, EAGER_VARIANT, Block, Measured, Memory, Record, VariantResult
from torchzoo.settings import CacheMode
from torchzoo.stats import Estimate, Shares


class FirstStep(NamedTuple):
    """The step that compiles."""

    wall_s: float
    cpu_s: float  # the compilers' own processes included


class VariantFigures(msgspec.Struct, frozen=True, kw_only=True):
    """The figures of one variant of a case."""

    latency_s: Estimate
    outliers: int
    steps_per_s: Estimate
    raw: VariantResult
    device_share: float | None  # share of a synchronised step's time in which the device works; None: not known
    issued_s: float | None  # time until a synchronised step returns to the host; None: not known
    host_s: Estimate | None = None  # H: the host's work for a step, in seconds of the reference host; None: not known
    model: StepModel | None = None  # of T on other hosts; None: not known
    host_speed: float | None = None  # how many times as long as the reference host this one takes; None: not known

    def latency_on(self, host: float) -> Estimate | None:
        """Return the time of a step on a host that takes `host` times as long as the reference host, by the model.

        None if the model lacks a figure. The interval is that of the measured time, in proportion.
        """
        if self.model is None:
            return None
        return stats.scaled(self.latency_s, self.model.step_s(host) / self.latency_s.value)

    @property
    def shares(self) -> Shares | None:
        """The shares of the wall time of the profiled steps; None without a breakdown."""
        return stats.shares(self.raw.breakdown) if self.raw.breakdown is not None else None

    @property
    def cold_first_step(self) -> FirstStep | None:
        """The first step if the caches of compiled code began empty, else None.

        If a process measured the candidate alone, its first step counts.
        """
        if self.raw.alone is not None:
            return FirstStep(self.raw.alone.first_step_s, self.raw.alone.first_step_cpu_s)
        compilation = self.raw.compilation
        if compilation is not None and compilation.cache in (CacheMode.WARM, CacheMode.SHARED):
            return None
        return FirstStep(self.raw.first_step_s, self.raw.first_step_cpu_s)

    @property
    def step_energy_j(self) -> Estimate | None:
        """Joules per step; None if energy was not measured."""
        return stats.step_energy_j(self.raw.energy) if self.raw.energy is not None else None


class CaseFigures(msgspec.Struct, frozen=True, kw_only=True):
    """The figures of a measured case. `candidate` and `speedup` are None for eager alone.

    Estimates and counts are over all processes of the case. `record`, `measured` and each variant's `raw` are of the
    process whose latency is the middle one.
    """

    record: Record
    measured: Measured
    eager: VariantFigures
    candidate: VariantFigures | None
    speedup: Estimate | None
    processes: int = 1

    @property
    def shown(self) -> VariantFigures:
        """The figures that represent the case: the candidate's, or eager's if there is no candidate."""
        return self.candidate or self.eager

    @property
    def variants(self) -> list[VariantFigures]:
        return [self.eager] if self.candidate is None else [self.eager, self.candidate]

    def peak_bytes(self, variant: VariantFigures) -> int | None:
        """The peak memory of a variant, on the device or, for CPU cases, on the host; None if it is not known."""
        memory = variant.raw.memory
        on_host = self.record.case.device_type == "cpu"
        return memory.host_peak_rss_bytes if on_host else memory.device_peak_allocated_bytes

    @property
    def timed_steps(self) -> int:
        """The number of timed steps of eager and the candidate together."""
        return sum(len(block.samples_s) for block in self.measured.blocks)

    def samples_per_s(self, variant: VariantFigures) -> float:
        """The throughput of a variant."""
        return variant.steps_per_s.value * self.measured.samples_per_step

    @property
    def time_ratio(self) -> Estimate | None:
        """T of the TorchBench paper: candidate time over eager time, 1 / speedup. Below 1 the candidate is faster."""
        return None if self.speedup is None else stats.inverse(self.speedup)

    @property
    def host_memory_ratio(self) -> float | None:
        """CM of the paper: candidate over eager, peak resident host memory. None if either is not known.

        The candidate's peak is read in a process without eager if there was one. Eager's peak is read before any
        compilation, so its process holds only eager in any case.
        """
        return self._memory_ratio(lambda memory: memory.host_peak_rss_bytes)

    @property
    def device_memory_ratio(self) -> float | None:
        """GM of the paper: candidate over eager, peak allocated device memory. None if either is not known."""
        return self._memory_ratio(lambda memory: memory.device_peak_allocated_bytes)

    @property
    def device_time_ratio(self) -> float | None:
        """The time in which the device works in a step, candidate over eager. None if either is not known.

        The ratio does not depend on the speed of the host, which other processes may share.
        """
        if self.candidate is None:
            return None
        candidate_s, eager_s = self.candidate.raw.device_active_s, self.eager.raw.device_active_s
        return candidate_s / eager_s if candidate_s and eager_s else None

    @property
    def host_time_ratio(self) -> float | None:
        """The host's work for a step, candidate over eager. None if either is not known."""
        if self.candidate is None or self.candidate.host_s is None or self.eager.host_s is None:
            return None
        return self.candidate.host_s.value / self.eager.host_s.value

    def speedup_on(self, host: float) -> Estimate | None:
        """Return the speedup on a host that takes `host` times as long as the reference host, by the model."""
        if self.candidate is None or self.speedup is None:
            return None
        eager, candidate = self.eager.latency_on(host), self.candidate.latency_on(host)
        if eager is None or candidate is None:
            return None
        return stats.scaled(self.speedup, eager.value / candidate.value / self.speedup.value)

    def _memory_ratio(self, peak_bytes: Callable[[Memory], int | None]) -> float | None:
        if self.candidate is None:
            return None
        raw = self.candidate.raw
        candidate, eager = peak_bytes(raw.alone.memory if raw.alone else raw.memory), peak_bytes(self.eager.raw.memory)
        return candidate / eager if candidate and eager else None


def case_figures(records: Sequence[Record]) -> CaseFigures:
    """The figures of one case from the processes that measured it. Records with other outcomes are ignored.

    The intervals include the differences between processes (`stats.processes_estimate`).
    """
    each = [_of_one(record, record.outcome) for record in records if isinstance(record.outcome, Measured)]
    if not each:
        raise ValueError("no measured record to show")
    if len(each) == 1:
        return each[0]
    middle = sorted(each, key=lambda one: one.shown.latency_s.value)[(len(each) - 1) // 2]
    return msgspec.structs.replace(
        middle,
        eager=_over_all(each, EAGER_VARIANT, middle.eager),
        candidate=_over_all(each, CANDIDATE_VARIANT, middle.candidate) if middle.candidate else None,
        speedup=stats.processes_estimate([stats.quad_ratios(one.measured.blocks) for one in each])
        if middle.candidate
        else None,
        processes=len(each),
    )


def host_speed(records: Iterable[Record]) -> float | None:
    """Return how many times as long as the reference host the host of a run takes; None if that is not known."""
    return _speed([record.outcome for record in records if isinstance(record.outcome, Measured)])


def _speed(processes: Iterable[Measured]) -> float | None:
    times_s = [block.reference_s for one in processes for block in one.blocks if block.reference_s is not None]
    return median(times_s) / REFERENCE_HOST_S if times_s else None


def _of_one(record: Record, measured: Measured) -> CaseFigures:
    has_candidate = CANDIDATE_VARIANT in measured.variants
    return CaseFigures(
        record=record,
        measured=measured,
        eager=_variant_figures(measured, EAGER_VARIANT),
        candidate=_variant_figures(measured, CANDIDATE_VARIANT) if has_candidate else None,
        speedup=stats.speedup(measured.blocks) if has_candidate else None,
    )


def _variant_figures(measured: Measured, variant: str) -> VariantFigures:
    result = measured.variants[variant]
    blocks: list[Block] = [block for block in measured.blocks if block.variant == variant]
    issued_s = [block.issued_s for block in blocks if block.issued_s is not None]
    host_s = host_times_s(measured, variant)
    return VariantFigures(
        latency_s=stats.latency_s(blocks, variant),
        outliers=stats.outlier_count([sample for block in blocks for sample in block.samples_s]),
        steps_per_s=stats.steps_per_s(result.back_to_back),
        device_share=device_share(measured, variant),
        issued_s=median(issued_s) if issued_s else None,
        host_s=stats.median_estimate(host_s) if host_s else None,
        model=step_model(measured, variant),
        host_speed=_speed([measured]),
        raw=result,
    )


def _over_all(each: Sequence[CaseFigures], variant: str, middle: VariantFigures) -> VariantFigures:
    measured = [one.measured for one in each]
    hosts_s = [host_times_s(one, variant) for one in measured]
    rates = [[run.steps / run.elapsed_s for run in one.variants[variant].back_to_back] for one in measured]
    return VariantFigures(
        latency_s=stats.processes_estimate([stats.block_times_s(one.blocks, variant) for one in measured]),
        outliers=sum(_variant_figures(one, variant).outliers for one in measured),
        steps_per_s=stats.processes_estimate(rates),
        device_share=middle.device_share,
        issued_s=middle.issued_s,
        host_s=stats.processes_estimate(hosts_s) if all(hosts_s) else None,
        model=middle.model,
        host_speed=middle.host_speed,
        raw=middle.raw,
    )
