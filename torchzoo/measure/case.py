"""Measure one case: build, prepare, warm up, compile, measure, examine."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import msgspec
import torch

from torchzoo import environment
from torchzoo.case import EAGER, Case, Mode, Parallel
from torchzoo.measure import passes
from torchzoo.measure.clock import DeviceClock, PatientClock
from torchzoo.measure.compilation import CompilationWatch, count_compiled, packaged, watch_compilation
from torchzoo.measure.finite import FiniteWatch, NotFinite, is_finite, why_not_measured
from torchzoo.measure.gang import Gang, Line
from torchzoo.measure.host import MATTERS, HostGate
from torchzoo.measure.idle import device_probe, wait_until_idle
from torchzoo.measure.latency import (
    HOST_SHARE_STEPS,
    Latency,
    host_share,
    measure_latency,
    measure_throughput,
    step_until_steady,
    steps_in,
)
from torchzoo.measure.member import Member
from torchzoo.measure.memory import free_memory, watch_device_peak
from torchzoo.measure.passes.breakdown import DeviceWork
from torchzoo.measure.passes.communication import Communication, collectives
from torchzoo.measure.precision import apply_memory_format, apply_precision, check_precision
from torchzoo.measure.process_group import use_device
from torchzoo.measure.quantization import refusals_are_skips
from torchzoo.measure.stages import Stages, Tell
from torchzoo.measure.variant import Variant
from torchzoo.measure.warmup import WarmUp, memory_steps, warm_up
from torchzoo.model import Model
from torchzoo.operators import OperatorShapes
from torchzoo.record import (
    CANDIDATE_VARIANT,
    EAGER_VARIANT,
    BackToBack,
    Breakdown,
    Check,
    Compilation,
    DeviceState,
    Energy,
    Growth,
    HostWatch,
    Measured,
    Memory,
    RankResult,
    VariantResult,
)
from torchzoo.settings import Pass, Settings, Stage
from torchzoo.zoo.spec import ModelSpec


def measure_case(
    case: Case,
    spec: ModelSpec,
    device_name: str,
    settings: Settings,
    tell: Tell,
    window: Callable[[], Any],
    *,
    gate: HostGate | None = None,
    lines: Sequence[Line] = (),
) -> Measured:
    """Measure one case on the device of that name, and check its results where the settings ask for it.

    `tell` is told each stage as it begins. `window` returns when this case may be measured, alone: until then other
    cases are prepared at the same time. `gate` watches the host for the first rank; without one, nothing is measured
    again when the host is slow. `lines` lead to the other ranks of a case that has several.

    Raises:
        NotRunnable: the case can't run as its label says, or its training is not finite in eager.
        NotFiniteByBackend: its training is not finite, and is finite in eager.
    """
    stages = Stages(tell)
    device = use_device(device_name, settings.threads)
    stages.enter(Stage.IMPORT)
    gang = Gang(Member(case, spec, device, gate=gate), lines)
    put_back: tuple[str, ...] = gang.everywhere("load")[0]
    model_class = gang.member.model_class
    not_finite: NotFinite | None = None
    try:
        measured = _measure_model(gang, case, spec, device, settings, stages, window)
    except NotFinite as error:
        not_finite = error.with_traceback(None)  # its frames hold the model
    gang.everywhere("release")
    if not_finite is not None:
        free_memory(device)
        raise why_not_measured(not_finite, case, partial(prepared_model, model_class, case, device))
    check = None
    if Pass.CHECK in settings.passes:
        check = _checked(gang, case, spec, device, stages)
    stages.close()
    return msgspec.structs.replace(
        measured,
        check=check,
        put_back=put_back,
        stage_seconds=stages.seconds,
        stage_cpu_seconds=stages.cpu_seconds,
    )


def _checked(gang: Gang, case: Case, spec: ModelSpec, device: torch.device, stages: Stages) -> Check:
    """The check, which builds models of its own: the measured one is gone."""
    free_memory(device)
    if gang.size > 1:
        stages.enter(Stage.CHECK)
        return passes.check_ranks_of(gang, case)
    stages.enter(Stage.HOLD)
    stages.enter(Stage.CHECK)
    return passes.check_of(case, spec, gang.member.model_class, device)


def _measure_model(
    gang: Gang,
    case: Case,
    spec: ModelSpec,
    device: torch.device,
    settings: Settings,
    stages: Stages,
    window: Callable[[], Any],
) -> Measured:
    """Everything but the check.

    Eager is warmed up, and its memory is read, before anything is compiled: what a compiler keeps is not eager's.

    Raises:
        NotFinite: training is not finite after a variant's warm-up, or after the window.
    """
    stages.enter(Stage.BUILD)
    member = gang.member
    if gang.size > 1:
        gang.meet()
    gang.everywhere("build")
    model = member.model

    stages.enter(Stage.PREPARE)
    flags = gang.everywhere("prepare")[0]
    finite = member.finite

    stages.enter(Stage.WARM_UP)
    clock, gate = gang.clock(DeviceClock(device)), gang.gate()
    patient = gang.clock(PatientClock(device))
    with refusals_are_skips(case.precision):
        eager = _warmed_up(gang, EAGER_VARIANT, patient, settings)
    finite.require(eager.steps, loss_is_finite=eager.warm.result_is_finite, candidate_stepped=False)
    gang.everywhere("inspect")
    inspection = member.inspection
    eager.steps += 1
    check_precision(model, case.precision, spec.native_dtype, inspection)
    runs = [eager]

    if case.backend != EAGER:
        stages.enter(Stage.COMPILE)
        watch = watch_compilation()
        gang.everywhere("add_candidate")
        runs.append(_warmed_up(gang, CANDIDATE_VARIANT, patient, settings, watch=watch))
        steps = sum(run.steps for run in runs)
        finite.require(steps, loss_is_finite=runs[1].warm.result_is_finite, candidate_stepped=True)

    with gang.quiet():
        stages.enter(Stage.WAIT)
        window()
        stages.enter(Stage.MEASURE)
        gang.everywhere("forget_steps")
        timing = _time_in_turns(runs, clock, gate, device, settings, partial(gang.everywhere, "collect"))
        rank_steps_s = gang.everywhere("step_medians_s")
        slowest_s = max(run.step_s for run in runs)
        for run in runs:
            run.back_to_back = measure_throughput(run.variant, clock, gate, timing.latency.blocks, slowest_s)
        gang.everywhere("release_core")  # a thread that a pass starts would keep to it, too
        for run in runs:
            run.energy = passes.energy_of(run.variant, settings, gang.devices(), clock, run.step_s)
        for run in runs:
            run.breakdown = passes.breakdown_of(run.variant, case, settings, device, clock, run.step_s)
            run.device_work = passes.device_work_of(run.variant, device, clock)
            run.operator_shapes = passes.operator_shapes_of(run.variant, settings, device, clock, run.step_s)
        for run in runs:
            run.communication = passes.communication_of(gang, run.variant, run.step_s)
    for run in runs:
        run.count_late_graphs(settings)

    stages.enter(Stage.EXAMINE)
    if case.mode is Mode.TRAIN:
        _require_finite(finite, runs, timing.latency)
    for run in runs:
        run.growth = passes.growth_of(run.variant, settings, device, clock, run.step_s)
    eager.variant.select()
    flops, api = passes.flops_and_api_of(eager.variant.step, settings)
    return Measured(
        blocks=timing.latency.blocks,
        stop_reason=timing.latency.stop_reason,
        variants={run.variant.name: run.result() for run in runs},
        samples_per_step=model.samples_per_step * (1 if case.parallel is Parallel.TP else case.world),
        sample_unit=model.sample_unit,
        bytes_read_per_step=None if case.parallel is Parallel.TP else model.bytes_read_per_step,  # a rank reads a part
        parameters=sum(p.numel() for network in model.networks().values() for p in network.parameters()),
        operator_dtypes=inspection.operator_dtypes,
        precision_flags=flags,
        host_syncs=spec.syncs.get(case.mode) if device.type != "cpu" else None,  # the CPU is its own host
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
            one_core=member.gate.one_core and bool(gate.fast_cores),
            looks_s=tuple(round(look_s, 7) for look_s in gate.looks_s),
            matters=gate.matters,
            waited_s=gate.waited_s,
            was_slow=timing.latency.host_was_slow,
            redone=timing.latency.redone,
        ),
        flops=flops,
        api=api,
        ranks=tuple(
            RankResult(
                step_s=step_s,
                memory={run.variant.name: run.memories[rank] for run in runs},
                communication={run.variant.name: run.communication[rank].steps for run in runs if run.communication},
            )
            for rank, step_s in enumerate(rank_steps_s)
        )
        if gang.size > 1
        else (),
    )


def _model(model_class: type[Model], case: Case, device: torch.device) -> Model:
    assert case.batch_size is not None
    return model_class(case.mode, device, case.batch_size, seed=case.seed)


def prepared_model(model_class: type[Model], case: Case, device: torch.device) -> Model:
    """The model of a case as it is before its first step."""
    model = _model(model_class, case, device)
    apply_precision(model, case.precision)
    apply_memory_format(model, case.memory_format)
    return model


@dataclass(kw_only=True)
class _VariantRun:
    """One variant, and what has been measured of it so far."""

    variant: Variant
    warm: WarmUp
    memory: Memory
    memories: list[Memory]  # of all ranks
    watch: CompilationWatch | None = None
    compilation: Compilation | None = None  # None unless Dynamo or AOTInductor compiled something
    back_to_back: tuple[BackToBack, ...] = ()
    energy: Energy | None = None
    breakdown: Breakdown | None = None
    operator_shapes: OperatorShapes | None = None
    device_work: Callable[[], DeviceWork | None] = lambda: None
    growth: Growth | None = None
    communication: list[Communication] = field(default_factory=list)  # of all ranks, if there are several
    steps: int  # that it has taken before its blocks were timed
    step_s: float  # how long a steady step takes: at first as in the warm-up, then as in its window

    def count_late_graphs(self, settings: Settings) -> None:
        """Count again, to include graphs that were compiled after the warm-up: in the memory pass or later."""
        if self.watch is not None and self.compilation is not None and self.compilation.package_bytes is None:
            self.compilation = self.watch.counts(settings.cache, warm_graphs=self.compilation.graphs)

    def result(self) -> VariantResult:
        work = self.device_work()
        return VariantResult(
            first_step_s=self.warm.first_step_s,
            first_step_cpu_s=self.warm.first_step_cpu_s,
            first_step_peak_bytes=self.warm.first_step_peak_bytes,
            warmup_s=self.warm.steps_s,
            memory=self.memory,
            back_to_back=self.back_to_back,
            result_is_finite=self.warm.result_is_finite,
            device_active_s=None if work is None else work.active_s,
            device_kernels=None if work is None else work.kernels,
            compilation=self.compilation,
            breakdown=self.breakdown,
            operator_shapes=self.operator_shapes,
            energy=self.energy,
            growth=self.growth,
            collectives=collectives(self.communication) if self.communication else (),
        )


def _warmed_up(
    gang: Gang,
    name: str,
    clock: DeviceClock,
    settings: Settings,
    *,
    watch: CompilationWatch | None = None,
) -> _VariantRun:
    """Warm a variant up, count what was compiled for it (the watch is a candidate's), and read its memory."""
    variant = gang.variant(name)
    peak, graphs = watch_device_peak(gang.member.device), (lambda: 0) if watch is None else watch.graphs
    warm = warm_up(variant, clock, settings, graphs, peak)
    compilation = None
    if watch is not None:
        compilation = packaged(variant.packages, settings.cache) or count_compiled(
            watch, gang.member.case, settings.cache
        )
    steps = memory_steps(settings, warm)
    memories = gang.everywhere("memory", name, steps)
    return _VariantRun(
        variant=variant,
        warm=warm,
        memory=memories[0],
        memories=memories,
        watch=watch,
        compilation=compilation,
        steps=warm.steps + steps,
        step_s=warm.steady_s,
    )


def _require_finite(finite: FiniteWatch, runs: Sequence[_VariantRun], latency: Latency) -> None:
    """The window has left everything finite, and so is the loss of one more step of each variant.

    The steps that were taken are rather over- than underestimated: some of the passes do not count theirs.
    """
    steps = sum(run.steps + (run.energy.steps if run.energy else 0) for run in runs)
    steps += sum(len(block.samples_s) for block in (*latency.blocks, *latency.redone)) + latency.other_steps
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


def _host_shares(runs: Sequence[_VariantRun], clock: DeviceClock) -> Iterator[float]:
    for run in runs:
        run.variant.select()
        yield host_share(run.variant.step, clock)
        run.steps += HOST_SHARE_STEPS


def _time_in_turns(
    runs: Sequence[_VariantRun],
    clock: DeviceClock,
    gate: HostGate,
    device: torch.device,
    settings: Settings,
    collect: Callable[[], object],
) -> _Timing:
    """Wait until the device is idle and the host is fast, step until steps are steady, and time blocks in turns."""
    wait_s, is_idle = wait_until_idle(device_probe(device), clock) if clock.is_asynchronous else (None, True)
    if clock.is_asynchronous:
        gate.matters = max(_host_shares(runs, clock)) > MATTERS
    gate.wait()
    for run in runs:  # after the wait, which moves all threads to other cores
        steps, run.step_s = step_until_steady(run.variant, clock)
        run.steps += steps
    state_before, host_before_s = environment.device_state(device), environment.host_loop_s()
    steps_per_block = {run.variant.name: steps_in(settings.block_s, run.step_s) for run in runs}
    variants = [run.variant for run in runs]
    latency = measure_latency(variants, clock, gate, settings, steps_per_block=steps_per_block, collect=collect)
    state_after, host_after_s = environment.device_state(device), environment.host_loop_s()
    return _Timing(
        latency=latency,
        device_wait_s=wait_s,
        device_was_busy=not is_idle,
        device_state_before=state_before,
        device_state_after=state_after,
        host_loop_s=(host_before_s, host_after_s),
    )
