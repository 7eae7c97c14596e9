"""Measure one case: build, prepare, warm up, compile, measure, examine."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import msgspec
import torch

from torchzoo import environment
from torchzoo.case import EAGER, Backend, Case, Mode
from torchzoo.measure import passes
from torchzoo.measure.clock import DeviceClock, PatientClock
from torchzoo.measure.compilation import CompilationWatch, count_compiled, watch_compilation
from torchzoo.measure.finite import FiniteWatch, NotFinite, is_finite, why_not_measured
from torchzoo.measure.global_state import GlobalState
from torchzoo.measure.host import HostGate
from torchzoo.measure.idle import device_probe, wait_until_idle
from torchzoo.measure.latency import Latency, measure_latency, measure_throughput, quiet_python, steps_in
from torchzoo.measure.memory import free_memory, measure_memory
from torchzoo.measure.precision import apply_memory_format, apply_precision, check_precision, inspect_step
from torchzoo.measure.stages import Stages, Tell
from torchzoo.measure.variant import Variant, candidate_variant, eager_variant
from torchzoo.measure.warmup import WarmUp, memory_steps, step_until_steady, warm_up
from torchzoo.model import Model
from torchzoo.record import (
    BackToBack,
    Breakdown,
    Compilation,
    DeviceState,
    Energy,
    Growth,
    HostWatch,
    Measured,
    Memory,
    VariantResult,
)
from torchzoo.settings import Settings, Stage
from torchzoo.zoo.catalog import load_model_class
from torchzoo.zoo.spec import ModelSpec


def measure_case(
    case: Case,
    spec: ModelSpec,
    device_name: str,
    settings: Settings,
    tell: Tell,
    window: Callable[[], Any],
    *,
    undisturbed_loop_s: float | None = None,
    cores: tuple[int, ...] | None = None,
) -> Measured:
    """Measure one case on the device of that name, and check its results where the settings ask for it.

    `tell` is told each stage as it begins. `window` returns when this case may be measured, alone: until then other
    cases are prepared at the same time. `undisturbed_loop_s` is what `environment.host_loop_s` takes on a host that
    does nothing else; if it is None, nothing is measured again when the host is slow. `cores` are those that the case
    may use while it is measured; it is kept to the fast ones among them. None: all cores, fast or slow.

    Raises:
        NotRunnable: the case can't run as its label says, or its training is not finite in eager.
        NotFiniteByBackend: its training is not finite, and is finite in eager.
    """
    stages = Stages(tell)
    device = _use_device(device_name, settings.threads)
    stages.enter(Stage.IMPORT)
    before = GlobalState()
    model_class = load_model_class(spec)
    put_back = before.put_back()
    gate = HostGate(undisturbed_loop_s, time.perf_counter_ns, cores)
    not_finite: NotFinite | None = None
    try:
        measured = _measure_model(model_class, case, spec, device, settings, stages, window, gate)
    except NotFinite as error:
        not_finite = error.with_traceback(None)  # its frames hold the model
    if not_finite is not None:
        free_memory(device)
        raise why_not_measured(not_finite, case, partial(_prepared_model, model_class, case, device))
    check = passes.check_of(case, spec, model_class, device, settings)  # the measured model is gone: it builds its own
    stages.close()
    return msgspec.structs.replace(
        measured,
        check=check,
        put_back=put_back,
        stage_seconds=stages.seconds,
        stage_cpu_seconds=stages.cpu_seconds,
    )


def _measure_model(
    model_class: type[Model],
    case: Case,
    spec: ModelSpec,
    device: torch.device,
    settings: Settings,
    stages: Stages,
    window: Callable[[], Any],
    gate: HostGate,
) -> Measured:
    """Everything but the check.

    Eager is warmed up, and its memory is read, before anything is compiled: what a compiler keeps is not eager's.

    Raises:
        NotFinite: training is not finite after a variant's warm-up, or after the window.
    """
    stages.enter(Stage.BUILD)
    model = _model(model_class, case, device)
    step = model.measured_step

    stages.enter(Stage.PREPARE)
    flags = apply_precision(model, case.precision)
    apply_memory_format(model, case.memory_format)
    finite = FiniteWatch(model)

    stages.enter(Stage.WARM_UP)
    clock = DeviceClock(device)
    patient = PatientClock(device)
    eager = _warmed_up(eager_variant(model, step), patient, device, settings)
    finite.require(eager.steps, loss_is_finite=eager.warm.result_is_finite, candidate_stepped=False)
    inspection = inspect_step(model, step)
    eager.steps += 1
    check_precision(model, case.precision, spec.native_dtype, inspection)
    runs = [eager]

    if case.backend != EAGER:
        stages.enter(Stage.COMPILE)
        watch = watch_compilation()
        candidate = candidate_variant(model, step, case, inspection.take_calls())
        runs.append(_warmed_up(candidate, patient, device, settings, backend=case.backend, watch=watch))
        steps = sum(run.steps for run in runs)
        finite.require(steps, loss_is_finite=runs[1].warm.result_is_finite, candidate_stepped=True)

    with quiet_python():
        stages.enter(Stage.WAIT)
        window()
        stages.enter(Stage.MEASURE)
        timing = _time_in_turns(runs, clock, gate, device, settings)
        slowest_s = max(run.step_s for run in runs)
        for run in runs:
            run.back_to_back = measure_throughput(run.variant, clock, timing.latency.blocks, slowest_s)
        for run in runs:
            run.energy = passes.energy_of(run.variant, settings, device, run.step_s)
        for run in runs:
            run.breakdown = passes.breakdown_of(run.variant, case, settings, device, run.step_s)
            run.device_time = passes.device_time_of(run.variant, run.breakdown, device)
    for run in runs:
        run.count_late_graphs(settings)

    stages.enter(Stage.EXAMINE)
    if case.mode is Mode.TRAIN:
        _require_finite(finite, runs, timing.latency)
    for run in runs:
        run.growth = passes.growth_of(run.variant, settings, device, run.step_s)
    eager.variant.select()
    flops, api = passes.flops_and_api_of(step, settings)
    return Measured(
        blocks=timing.latency.blocks,
        stop_reason=timing.latency.stop_reason,
        variants={run.variant.name: run.result() for run in runs},
        samples_per_step=model.samples_per_step,
        sample_unit=model.sample_unit,
        bytes_read_per_step=model.bytes_read_per_step,
        parameters=sum(p.numel() for network in model.networks().values() for p in network.parameters()),
        operator_dtypes=inspection.operator_dtypes,
        precision_flags=flags,
        host_syncs=spec.syncs.get(case.mode),
        threads=torch.get_num_threads(),
        device_name=environment.device_name(device),
        device_state_before=timing.device_state_before,
        device_state_after=timing.device_state_after,
        device_wait_s=timing.device_wait_s,
        device_was_busy=timing.device_was_busy,
        host_loop_s=timing.host_loop_s,
        host=HostWatch(
            undisturbed_s=gate.undisturbed_s,
            fast_cores=gate.fast_cores,
            looks_s=tuple(gate.looks_s),
            waited_s=gate.waited_s,
            was_slow=timing.latency.host_was_slow,
            redone=timing.latency.redone,
        ),
        flops=flops,
        api=api,
    )


def _model(model_class: type[Model], case: Case, device: torch.device) -> Model:
    assert case.batch_size is not None
    return model_class(case.mode, device, case.batch_size, seed=case.seed)


def _prepared_model(model_class: type[Model], case: Case, device: torch.device) -> Model:
    """The model of a case as it is before its first step."""
    model = _model(model_class, case, device)
    apply_precision(model, case.precision)
    apply_memory_format(model, case.memory_format)
    return model


def _use_device(name: str, threads: int | None) -> torch.device:
    device = torch.device(name)
    if threads is not None:
        torch.set_num_threads(threads)
    if device.type != "cpu":
        device = torch.device(device.type, device.index or 0)
        torch.accelerator.set_device_index(device)
    return device


@dataclass(kw_only=True)
class _VariantRun:
    """One variant, and what has been measured of it so far."""

    variant: Variant
    warm: WarmUp
    memory: Memory
    watch: CompilationWatch | None = None
    compilation: Compilation | None = None  # None unless the variant has a backend behind Dynamo
    back_to_back: tuple[BackToBack, ...] = ()
    energy: Energy | None = None
    breakdown: Breakdown | None = None
    device_time: Callable[[], float | None] = lambda: None
    growth: Growth | None = None
    steps: int  # that it has taken before its blocks were timed

    @property
    def step_s(self) -> float:
        """How long a steady step takes."""
        return self.warm.steady_s

    def count_late_graphs(self, settings: Settings) -> None:
        """Count again, to include graphs that were compiled after the warm-up: in the memory pass or later."""
        if self.watch is not None and self.compilation is not None:
            self.compilation = self.watch.counts(settings.cache, warm_graphs=self.compilation.graphs)

    def result(self) -> VariantResult:
        return VariantResult(
            first_step_s=self.warm.first_step_s,
            first_step_cpu_s=self.warm.first_step_cpu_s,
            warmup_s=self.warm.steps_s,
            memory=self.memory,
            back_to_back=self.back_to_back,
            result_is_finite=self.warm.result_is_finite,
            device_active_s=self.device_time(),
            compilation=self.compilation,
            breakdown=self.breakdown,
            energy=self.energy,
            growth=self.growth,
        )


def _warmed_up(
    variant: Variant,
    clock: DeviceClock,
    device: torch.device,
    settings: Settings,
    *,
    backend: Backend = EAGER,
    watch: CompilationWatch | None = None,
) -> _VariantRun:
    """Warm a variant up, count what the watch (of a candidate) saw, and read the variant's memory."""
    warm = warm_up(variant, clock, settings) if watch is None else warm_up(variant, clock, settings, watch.graphs)
    compilation = count_compiled(watch, backend, settings.cache) if watch is not None else None
    steps = memory_steps(settings, warm)
    memory = measure_memory(variant.step, steps, device)
    return _VariantRun(
        variant=variant, warm=warm, memory=memory, watch=watch, compilation=compilation, steps=warm.steps + steps
    )


def _require_finite(finite: FiniteWatch, runs: Sequence[_VariantRun], latency: Latency) -> None:
    """The window has left everything finite, and so is the loss of one more step of each variant.

    The steps that were taken are rather over- than underestimated: some of the passes do not count theirs.
    """
    steps = sum(run.steps + (run.energy.steps if run.energy else 0) for run in runs)
    steps += sum(len(block.samples_s) for block in (*latency.blocks, *latency.redone))
    steps += sum(one.steps for run in runs for one in run.back_to_back)
    for run in runs:
        run.variant.select()
        loss = run.variant.step()
        finite.require(steps + steps // 5, loss_is_finite=is_finite(loss), candidate_stepped=len(runs) > 1)


@dataclass(frozen=True, kw_only=True)
class _Timing:
    """The latency pass, and the state of device and host around it; the fields are those of `Measured`."""

    latency: Latency
    device_wait_s: float | None
    device_was_busy: bool
    device_state_before: DeviceState | None
    device_state_after: DeviceState | None
    host_loop_s: tuple[float, ...]


def _time_in_turns(
    runs: Sequence[_VariantRun], clock: DeviceClock, gate: HostGate, device: torch.device, settings: Settings
) -> _Timing:
    """Wait until the device is idle and the host is fast, step until steps are steady, and time blocks in turns."""
    wait_s, is_idle = wait_until_idle(device_probe(device), clock) if clock.is_asynchronous else (None, True)
    for run in runs:
        run.steps += step_until_steady(run.variant, clock, run.step_s)
    gate.wait()
    state_before, host_before_s = environment.device_state(device), environment.host_loop_s()
    steps_per_block = {run.variant.name: steps_in(settings.block_s, run.step_s) for run in runs}
    variants = [run.variant for run in runs]
    latency = measure_latency(variants, clock, gate, settings, steps_per_block=steps_per_block)
    state_after, host_after_s = environment.device_state(device), environment.host_loop_s()
    return _Timing(
        latency=latency,
        device_wait_s=wait_s,
        device_was_busy=not is_idle,
        device_state_before=state_before,
        device_state_after=state_after,
        host_loop_s=(host_before_s, host_after_s),
    )
