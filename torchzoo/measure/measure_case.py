"""Measure one case: build, prepare, warm up, compile, time, examine, check.

`measure_alone` measures only the memory of a candidate, in a process of its own.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, NamedTuple

import msgspec
import torch

from torchzoo import backends
from torchzoo.case import EAGER, Case, Mode, Parallel
from torchzoo.devices import device_of
from torchzoo.machine import facts
from torchzoo.measure.case_rank import CaseRank
from torchzoo.measure.case_ranks import CaseRanks, Line
from torchzoo.measure.check.check_case import check_case
from torchzoo.measure.check.check_ranks import check_ranks
from torchzoo.measure.check.runs import TimedRuns, timed_runs
from torchzoo.measure.clock import DeviceClock, PatientClock, cpu_time_s
from torchzoo.measure.compilation import (
    CompilationWatch,
    count_compiled,
    packaged,
    require_eager,
    watch_compilation,
)
from torchzoo.measure.finite import NotFinite, loss_scale, why_not_measured
from torchzoo.measure.global_state import keeping_state
from torchzoo.measure.host import MATTERS, WAIT_S, HostGate
from torchzoo.measure.host_reference import HostReference
from torchzoo.measure.latency import (
    HOST_SHARE_STEPS,
    Latency,
    host_share,
    measure_latency,
    measure_throughput,
    step_until_steady,
    steps_in,
)
from torchzoo.measure.memory import free_memory, measure_memory, watch_device_peak
from torchzoo.measure.passes import FIELDS, PASSES, Fields, PassContext, only_of
from torchzoo.measure.precision import apply_memory_format, apply_precision, check_precision
from torchzoo.measure.process_group import use_device
from torchzoo.measure.quantization import refusals_are_skips
from torchzoo.measure.variant import Variant, candidate_variant
from torchzoo.measure.warmup import WarmUp, memory_steps, warm_up
from torchzoo.model import Model
from torchzoo.model.tensors import is_finite
from torchzoo.record import (
    CANDIDATE_VARIANT,
    EAGER_VARIANT,
    Alone,
    BackToBack,
    Check,
    Checked,
    CheckStatus,
    Compilation,
    DeviceState,
    HostWatch,
    Measured,
    Memory,
    RankResult,
    VariantResult,
)
from torchzoo.settings import Settings, Stage
from torchzoo.zoo.spec import ModelSpec


@dataclass(frozen=True, kw_only=True)
class Assignment:
    """A case to measure, with what its worker gives for it."""

    case: Case
    spec: ModelSpec
    device: str  # of the first rank
    settings: Settings
    gate: HostGate | None = None  # watches the host for the first rank; None: the host is never slow
    lines: Sequence[Line] = ()  # to the other ranks of a case that has several
    tell: Callable[[Stage], object] = lambda _: None  # is called with each stage as it begins
    #: Returns when this case may be measured alone, with the most seconds of timing (None: as the settings say). Until
    #: then other cases are prepared at the same time.
    window: Callable[[], float | None] = lambda: None
    #: Is called with the figures after the timing, and before the check: they count even if a later stage fails.
    keep: Callable[[Measured], object] = lambda _: None

    @property
    def checks_timed_code(self) -> bool:
        """Whether the check judges the code that was timed: not in eager, nor where several ranks share the case."""
        is_compiled = self.case.backend != EAGER and self.case.world == 1
        return self.settings.is_timed and self.settings.checks and is_compiled


class Stages:
    """The seconds of each stage, as wall time and as CPU time. Call `close` after the last stage.

    CPU time is read once where a stage follows another: the kernel is asked for all processes to find the children.
    """

    def __init__(self, tell: Callable[[Stage], object]) -> None:
        self._tell = tell
        self._current: Stage | None = None
        self._began = (0.0, 0.0)
        self.seconds: dict[str, float] = {}
        self.cpu_seconds: dict[str, float] = {}
        self.window_seconds: dict[str, float] = {}  # of the parts of the measuring window

    def enter(self, stage: Stage) -> None:
        """End the current stage, and begin this one."""
        now = (time.perf_counter(), cpu_time_s())
        self._end(now)
        self._current, self._began = stage, now
        self._tell(stage)

    @contextlib.contextmanager
    def part(self, name: str) -> Iterator[None]:
        """Time a part of the measuring window."""
        began_s = time.perf_counter()
        yield
        took_s = time.perf_counter() - began_s
        self.window_seconds[name] = self.window_seconds.get(name, 0.0) + took_s

    def close(self) -> None:
        """End the current stage."""
        self._end((time.perf_counter(), cpu_time_s()))

    def _end(self, now: tuple[float, float]) -> None:
        if self._current is not None:
            self.seconds[self._current] = now[0] - self._began[0]
            self.cpu_seconds[self._current] = now[1] - self._began[1]


def measure_case(given: Assignment) -> Measured | Checked:
    """Measure one case, and check its results where the settings ask for it; or check it alone.

    Raises:
        NotRunnable: the case can't run as its label says, or its training is not finite in eager.
        LabelNotReached: the step is not what its label says, or its backend was given nothing to compile.
        NotFiniteByBackend: its training is not finite, and is finite in eager.
    """
    stages = Stages(given.tell)
    device = use_device(given.device, given.settings.threads)
    stages.enter(Stage.IMPORT)
    own = CaseRank(given.case, given.spec, device, gate=given.gate, keeps_start=given.checks_timed_code)
    ranks = CaseRanks(own, given.lines)
    ranks.everywhere(CaseRank.load)
    measure_model = _time_model if given.settings.is_timed else _inspect_model
    not_finite: NotFinite | None = None
    try:
        found, timed = measure_model(given, ranks, stages)
    except NotFinite as error:
        not_finite = error.with_traceback(None)  # its frames hold the model
    ranks.everywhere(CaseRank.release)
    if not_finite is not None:
        free_memory(device)
        raise why_not_measured(not_finite, given.case, partial(prepared_model, own.model_class, given.case, device))
    if given.settings.checks:
        found = _with_check(ranks, stages, found, timed)
    stages.close()
    return found


def _with_check(
    ranks: CaseRanks, stages: Stages, found: Measured | Checked, timed: TimedRuns | None
) -> Measured | Checked:
    """Check the case with new models, now that the measured model is released."""
    own, watch = ranks.own, CompilationWatch()
    free_memory(own.device)
    if ranks.size == 1:
        stages.enter(Stage.HOLD)
        stages.enter(Stage.CHECK)
        check = check_case(own.case, own.spec, own.model_class, own.device, timed=timed)
    else:
        stages.enter(Stage.CHECK)
        check = check_ranks(ranks, own.case)
    if isinstance(found, Checked) and backends.info(own.case.backend.name).uses_dynamo:
        found = msgspec.structs.replace(found, graphs=watch.graphs())
    return msgspec.structs.replace(found, check=check)


def _time_model(given: Assignment, ranks: CaseRanks, stages: Stages) -> tuple[Measured, TimedRuns | None]:
    """Measure all but the check, and take the steps of the timed code that the check judges.

    Eager is warmed up, and its memory is read, before anything is compiled, so that eager's figures do not include the
    memory of a compiler.

    Raises:
        NotFinite: training is not finite after a variant's warm-up, or after the timing.
    """
    own, case, settings = ranks.own, given.case, given.settings
    _build(ranks, stages)

    stages.enter(Stage.WARM_UP)
    watch = watch_compilation()
    with refusals_are_skips(case.precision):
        runs = [_warmed_up(ranks, EAGER_VARIANT, settings)]
    require_eager(own.model, watch)
    _require_finite_warm_up(ranks, runs)
    ranks.everywhere(CaseRank.inspect)
    runs[0].steps += 1
    check_precision(own.model, case.precision, own.spec.native_dtype, own.inspection)

    if case.backend != EAGER:
        stages.enter(Stage.COMPILE)
        watch = watch_compilation()
        ranks.everywhere(CaseRank.import_backend)
        runs.append(_warmed_up(ranks, CANDIDATE_VARIANT, settings, watch))
        _require_finite_warm_up(ranks, runs)

    with ranks.quiet():
        stages.enter(Stage.WAIT)
        limit_s = given.window()
        stages.enter(Stage.MEASURE)
        timing = _time_in_turns(ranks, runs, settings, stages, limit_s)
        if case.mode is Mode.TRAIN:
            with stages.part("finite"):
                _require_finite(ranks, runs, timing.latency)
        _count_late_graphs(runs, settings)
        with stages.part("record"):
            given.keep(_measured(given, ranks, stages, runs, timing))
        ranks.everywhere(CaseRank.release_core)  # threads that a pass starts would be pinned to it, too
        _make_passes(ranks, runs, settings, stages, in_window=True)
    _count_late_graphs(runs, settings)

    stages.enter(Stage.EXAMINE)
    _make_passes(ranks, runs, settings, stages, in_window=False)
    measured = _measured(given, ranks, stages, runs, timing)
    if settings.checks:
        given.keep(measured)
    return measured, timed_runs(own) if given.checks_timed_code else None


def _inspect_model(_: Assignment, ranks: CaseRanks, stages: Stages) -> tuple[Checked, None]:
    """Inspect one eager step, and require that it is finite and what its label says.

    Raises:
        NotFinite: training is not finite after this step.
    """
    own = ranks.own
    _build(ranks, stages)
    stages.enter(Stage.WARM_UP)
    with refusals_are_skips(own.case.precision):
        ranks.everywhere(CaseRank.inspect)
    own.finite.require(1, loss_is_finite=own.inspection.result_is_finite, candidate_stepped=False)
    check_precision(own.model, own.case.precision, own.spec.native_dtype, own.inspection)
    return Checked(check=Check(status=CheckStatus.NOT_REACHED), graphs=None, **_facts(ranks, stages)), None


def _build(ranks: CaseRanks, stages: Stages) -> None:
    stages.enter(Stage.BUILD)
    if ranks.size > 1:
        ranks.meet()
    ranks.everywhere(CaseRank.build)
    stages.enter(Stage.PREPARE)
    ranks.everywhere(CaseRank.prepare)


def prepared_model(model_class: type[Model], case: Case, device: torch.device) -> Model:
    """Return the model of a case as it is before its first step."""
    assert case.batch_size is not None
    model, _ = keeping_state(partial(model_class, case.mode, device, case.batch_size, seed=case.seed))
    apply_precision(model, case.precision)
    apply_memory_format(model, case.memory_format)
    return model


@dataclass(kw_only=True)
class _VariantRun:
    """A variant, and what has been measured of it so far."""

    variant: Variant
    warm: WarmUp
    memories: list[Memory]  # of all ranks
    watch: CompilationWatch | None  # of a candidate
    compilation: Compilation | None  # None unless Dynamo or AOTInductor compiled something
    conversion_s: float | None  # the part of `warm.first_step_s` before the step itself
    warm_graphs: int  # compiled in the warm-up
    steps: int  # taken before its blocks were timed
    step_s: float  # the time of a steady step: at first as in the warm-up, then as in its window
    back_to_back: tuple[BackToBack, ...] = ()
    found: list[Fields | Callable[[], Fields]] = field(default_factory=list)  # by passes

    def fields(self) -> Fields:
        """Return what passes found so far."""
        fields = {name: value for one in self.found for name, value in (one() if callable(one) else one).items()}
        assert fields.keys() <= FIELDS, f"the record has no {fields.keys() - FIELDS}"
        return fields


def _warmed_up(ranks: CaseRanks, name: str, settings: Settings, watch: CompilationWatch | None = None) -> _VariantRun:
    """Warm a variant up, count what was compiled for it, and read its memory.

    A candidate has a `watch`, and is made here: the time in which a backend traces, exports or compiles before the
    first step counts as part of that step.
    """
    own, clock = ranks.own, ranks.clock(PatientClock(ranks.own.device))
    peak = watch_device_peak(own.device)
    began_ns, cpu_before_s = clock.now_ns(), cpu_time_s()
    if watch is not None:
        ranks.everywhere(CaseRank.add_candidate)
    made_s, made_cpu_s = (clock.now_ns() - began_ns) / 1e9, cpu_time_s() - cpu_before_s
    variant = ranks.variant(name)
    graphs = (lambda: 0) if watch is None else watch.graphs
    warm = warm_up(variant, clock, settings, graphs, peak, partial(loss_scale, own.model))
    compilation = None
    if watch is not None:
        first_step_s, first_step_cpu_s = warm.first_step_s + made_s, warm.first_step_cpu_s + made_cpu_s
        warm = replace(warm, first_step_s=first_step_s, first_step_cpu_s=first_step_cpu_s)
        compilation = packaged(variant.packages, settings.cache) or count_compiled(watch, own.case, settings.cache)
    steps = memory_steps(settings, warm)
    return _VariantRun(
        variant=variant,
        warm=warm,
        memories=ranks.everywhere(CaseRank.memory, name, steps),
        watch=watch,
        compilation=compilation,
        conversion_s=None if watch is None else made_s,
        warm_graphs=0 if compilation is None else compilation.graphs,
        steps=warm.steps + steps,
        step_s=warm.steady_s,
    )


def _count_late_graphs(runs: Sequence[_VariantRun], settings: Settings) -> None:
    """Count again, to include graphs that were compiled after the warm-up: in the memory pass or later."""
    for run in runs:
        if run.watch is not None and run.compilation is not None and run.compilation.package_bytes is None:
            run.compilation = run.watch.counts(settings.cache, warm_graphs=run.warm_graphs)


def _require_finite_warm_up(ranks: CaseRanks, runs: Sequence[_VariantRun]) -> None:
    warm = runs[-1].warm
    ranks.own.finite.require(
        sum(run.steps for run in runs),
        loss_is_finite=warm.result_is_finite,
        candidate_stepped=len(runs) > 1,
        makes_updates=warm.makes_updates,
    )


def _require_finite(ranks: CaseRanks, runs: Sequence[_VariantRun], latency: Latency) -> None:
    """Require that all is finite after the timing, with the loss of one more step of each variant, which learns.

    The number of steps is rather over- than underestimated: some steps are not counted.
    """
    model = ranks.own.model
    steps = sum(run.steps for run in runs)
    steps += sum(len(block.samples_s) for block in (*latency.blocks, *latency.redone)) + latency.other_steps
    steps += sum(one.steps for run in runs for one in run.back_to_back)
    for run in runs:
        run.variant.select()
        loss, scale = run.variant.step(), loss_scale(model)
        if model.scaler is not None:  # the first step may be skipped: a scale that has just grown may be too large
            loss = run.variant.step()
        ranks.own.finite.require(
            steps + steps // 5,
            loss_is_finite=is_finite(loss),
            candidate_stepped=len(runs) > 1,
            makes_updates=loss_scale(model) >= scale,
        )


class _Timing(NamedTuple):
    """The latency pass, and the state of devices and host around it. Other fields are those of `Measured`."""

    latency: Latency
    rank_steps_s: Sequence[dict[str, float]]  # of each rank, by variant
    device_wait_s: float | None
    device_was_busy: bool
    states_before: Sequence[DeviceState | None]  # of each rank's device
    states_after: Sequence[DeviceState | None]
    host_loop_s: tuple[float, ...]


def _host_shares(runs: Sequence[_VariantRun], clock: DeviceClock) -> Iterator[float]:
    for run in runs:
        run.variant.select()
        yield host_share(run.variant.step, clock)
        run.steps += HOST_SHARE_STEPS


def _time_in_turns(
    ranks: CaseRanks, runs: Sequence[_VariantRun], settings: Settings, stages: Stages, limit_s: float | None
) -> _Timing:
    """Wait until the devices are idle and the host is fast, step until steps are steady, and time blocks in turns.

    Then time steps back to back.
    """
    clock, gate = ranks.clock(ranks.own.clock), ranks.gate
    ranks.everywhere(CaseRank.forget_steps)
    with stages.part("wait"):
        waits = [found for found in ranks.everywhere(CaseRank.wait_for_device) if found is not None]
        if clock.is_asynchronous:
            gate.matters = max(_host_shares(runs, clock)) > MATTERS
        gate.wait(WAIT_S if settings.share_s is None else min(WAIT_S, settings.share_s / 2))
    with stages.part("steady"):
        for run in runs:  # after the wait, which moves all threads to other cores
            steps, run.step_s = step_until_steady(run.variant, clock)
            run.steps += steps
    states_before, host_before_s = ranks.everywhere(CaseRank.device_state), facts.host_loop_s()
    steps_per_block = {run.variant.name: steps_in(settings.block_s, run.step_s) for run in runs}
    variants = [run.variant for run in runs]
    collect = partial(ranks.everywhere, CaseRank.collect)
    reference = HostReference(ranks.own.device, clock, trains=ranks.own.case.mode is Mode.TRAIN)
    reference.warm_up()
    with stages.part("latency"):
        latency = measure_latency(
            variants,
            clock,
            gate,
            settings,
            limit_s=limit_s,
            steps_per_block=steps_per_block,
            collect=collect,
            reference=reference.take_s,
        )
    states_after, host_after_s = ranks.everywhere(CaseRank.device_state), facts.host_loop_s()
    rank_steps_s = ranks.everywhere(CaseRank.step_medians_s)
    slowest_s = max(run.step_s for run in runs)
    with stages.part("throughput"):
        for run in runs:
            run.back_to_back = measure_throughput(run.variant, clock, gate, latency.blocks, slowest_s)
    return _Timing(
        latency=latency,
        rank_steps_s=rank_steps_s,
        device_wait_s=max((wait_s for wait_s, _ in waits), default=None),
        device_was_busy=not all(is_idle for _, is_idle in waits),
        states_before=states_before,
        states_after=states_after,
        host_loop_s=(host_before_s, host_after_s),
    )


def _make_passes(
    ranks: CaseRanks, runs: Sequence[_VariantRun], settings: Settings, stages: Stages, *, in_window: bool
) -> None:
    """Make the passes of the window, or those after it, that are asked for or always made."""
    clock = ranks.clock(ranks.own.clock)
    for row in PASSES:
        if row.in_window is not in_window or not row.when(ranks.own.case, settings):
            continue
        measure = row.load()
        for run in runs:
            if run.variant.name in row.variants:
                run.variant.select()
                context = PassContext(
                    ranks=ranks, variant=run.variant, step_s=run.step_s, clock=clock, settings=settings
                )
                with stages.part(row.module) if in_window else contextlib.nullcontext():
                    run.found.append(measure(context))


def _measured(
    given: Assignment,
    ranks: CaseRanks,
    stages: Stages,
    runs: Sequence[_VariantRun],
    timing: _Timing,
) -> Measured:
    """Return all that was measured so far. A check that was asked for is not made yet."""
    own, case, latency, gate = ranks.own, given.case, timing.latency, ranks.gate
    is_split = case.parallel is Parallel.TP  # the ranks have one batch, and each reads a part of the weights
    found = {run.variant.name: run.fields() for run in runs}
    rank_results = (
        RankResult(
            step_s=step_s,
            memory={run.variant.name: run.memories[rank] for run in runs},
            communication={name: one["communication"][rank] for name, one in found.items() if "communication" in one},
            device_state_before=timing.states_before[rank],
            device_state_after=timing.states_after[rank],
        )
        for rank, step_s in enumerate(timing.rank_steps_s)
    )
    return Measured(
        blocks=latency.blocks,
        stop_reason=latency.stop_reason,
        variants={run.variant.name: _variant_result(run, found[run.variant.name]) for run in runs},
        samples_per_step=own.model.samples_per_step * (1 if is_split else case.world),
        sample_unit=own.model.sample_unit,
        bytes_read_per_step=None if is_split else own.model.bytes_read_per_step,
        unequal_work=next((rule.reason for rule in own.spec.unequal_work if rule.matches(case)), ""),
        host_syncs=own.spec.syncs.get(case.mode) if own.device.type != "cpu" else None,  # the CPU is its own host
        device_state_before=timing.states_before[0],
        device_state_after=timing.states_after[0],
        device_wait_s=timing.device_wait_s,
        device_was_busy=timing.device_was_busy,
        host_loop_s=timing.host_loop_s,
        window_seconds=stages.window_seconds,
        host=HostWatch(
            undisturbed_s=gate.undisturbed_s,
            fast_cores=gate.fast_cores,
            one_core=own.gate.one_core and bool(gate.fast_cores),
            looks_s=tuple(round(look_s, 7) for look_s in gate.looks_s),
            matters=gate.matters,
            waited_s=gate.waited_s,
            was_slow=latency.host_was_slow,
            redone=latency.redone,
        ),
        ranks=tuple(rank_results) if ranks.size > 1 else (),
        check=Check(status=CheckStatus.NOT_REACHED) if given.settings.checks else None,
        **_facts(ranks, stages),
        **only_of(Measured, {name: value for fields in found.values() for name, value in fields.items()}),
    )


def _facts(ranks: CaseRanks, stages: Stages) -> dict[str, Any]:
    """Return the fields that `Measured` and `Checked` share. Those of stages grow with each stage."""
    own = ranks.own
    networks = own.model.networks().values()
    return {
        "parameters": sum(parameter.numel() for network in networks for parameter in network.parameters()),
        "operator_dtypes": own.inspection.operator_dtypes,
        "precision_flags": own.precision_flags,
        "threads": torch.get_num_threads(),
        "device_name": device_of(own.device).name(),
        "put_back": own.put_back,
        "stage_seconds": stages.seconds,
        "stage_cpu_seconds": stages.cpu_seconds,
    }


def _variant_result(run: _VariantRun, found: Fields) -> VariantResult:
    return VariantResult(
        first_step_s=run.warm.first_step_s,
        first_step_cpu_s=run.warm.first_step_cpu_s,
        conversion_s=run.conversion_s,
        first_step_peak_bytes=run.warm.first_step_peak_bytes,
        warmup_s=run.warm.steps_s,
        memory=run.memories[0],
        back_to_back=run.back_to_back,
        result_is_finite=run.warm.result_is_finite,
        compilation=run.compilation,
        **only_of(VariantResult, found),
    )


def measure_alone(case: Case, spec: ModelSpec, device_name: str, settings: Settings) -> Alone:
    """Build the model, compile it, time its first step, and read the peaks of that step and of a few steady ones.

    This process must be new to the device. All else is as in the process that is timed, without the eager steps:
    networks that the step does not call are never compiled, for example.

    Raises:
        LabelNotReached, NotRunnable: as for a candidate that is timed.
    """
    device = use_device(device_name, settings.threads)
    own = CaseRank(case, spec, device)
    own.load()
    own.build()
    own.prepare()
    model, watch = own.model, watch_compilation()
    variant = candidate_variant(model, model.measured_step, case, dict.fromkeys(model.networks()))
    peak = watch_device_peak(device)
    warm = warm_up(variant, PatientClock(device), settings, watch.graphs, peak)
    count_compiled(watch, case, settings.cache)
    return Alone(
        first_step_s=warm.first_step_s,
        first_step_cpu_s=warm.first_step_cpu_s,
        first_step_peak_bytes=warm.first_step_peak_bytes,
        memory=measure_memory(variant.step, memory_steps(settings, warm), device),
    )
