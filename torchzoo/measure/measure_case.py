"""Measure one case: build, prepare, warm up, compile, measure, examine."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeVar

import msgspec
import torch

from torchzoo.case import EAGER, Case, Mode, Parallel
from torchzoo.machine import facts
from torchzoo.measure.case_rank import CaseRank
from torchzoo.measure.case_ranks import CaseRanks, Line
from torchzoo.measure.check.check_case import check_case
from torchzoo.measure.check.check_ranks import check_ranks
from torchzoo.measure.check.runs import TimedRuns, timed_runs
from torchzoo.measure.clock import DeviceClock, PatientClock
from torchzoo.measure.compilation import require_eager, watch_compilation
from torchzoo.measure.finite import FiniteWatch, NotFinite, loss_scale, why_not_measured
from torchzoo.measure.global_state import keeping_state
from torchzoo.measure.host import MATTERS, HostGate
from torchzoo.measure.latency import (
    HOST_SHARE_STEPS,
    Latency,
    host_share,
    measure_latency,
    measure_throughput,
    step_until_steady,
    steps_in,
)
from torchzoo.measure.memory import free_memory
from torchzoo.measure.passes import PASSES, PassContext, only_of
from torchzoo.measure.precision import apply_memory_format, apply_precision, check_precision
from torchzoo.measure.process_group import use_device
from torchzoo.measure.quantization import refusals_are_skips
from torchzoo.measure.stages import Stages, Tell
from torchzoo.measure.variant_run import VariantRun, warmed_up
from torchzoo.model import Model
from torchzoo.model.tensors import is_finite
from torchzoo.record import (
    CANDIDATE_VARIANT,
    EAGER_VARIANT,
    Check,
    CheckStatus,
    DeviceState,
    HostWatch,
    Measured,
    RankResult,
)
from torchzoo.settings import Pass, Settings, Stage
from torchzoo.zoo.spec import ModelSpec

_Found = TypeVar("_Found")


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
    keep: Callable[[Measured], object] = lambda _: None,
) -> Measured:
    """Measure one case on the device of that name, and check its results where the settings ask for it.

    `tell` is called with each stage as it begins. `window` returns when this case may be measured alone: until then
    other cases are prepared at the same time. `gate` watches the host for the first rank; without a gate, nothing is
    measured again when the host is slow. `lines` lead to the other ranks of a case that has several. `keep` is called
    with the figures after the timing, and again before the check: they count even if a later stage fails.

    Raises:
        NotRunnable: the case can't run as its label says, or its training is not finite in eager.
        NotFiniteByBackend: its training is not finite, and is finite in eager.
    """
    stages = Stages(tell)
    device = use_device(device_name, settings.threads)
    stages.enter(Stage.IMPORT)
    checks = Pass.CHECK in settings.passes
    ranks = CaseRanks(CaseRank(case, spec, device, gate=gate, keeps_start=checks and has_code_to_check(case)), lines)
    ranks.everywhere(CaseRank.load)

    def whole(measured: Measured) -> Measured:
        return msgspec.structs.replace(
            measured,
            put_back=ranks.own.put_back,
            stage_seconds=stages.seconds,
            stage_cpu_seconds=stages.cpu_seconds,
        )

    def keep_whole(measured: Measured) -> None:
        keep(whole(measured))

    def with_its_model() -> tuple[Measured, TimedRuns | None]:
        measured = _measure_model(ranks, case, spec, device, settings, stages, window, keep_whole)
        if checks:
            keep_whole(measured)
        return measured, timed_runs(ranks.own) if checks and has_code_to_check(case) else None

    measured, timed = with_model(ranks, with_its_model)
    if checks:
        measured = msgspec.structs.replace(measured, check=check_results(ranks, stages, timed=timed))
    stages.close()
    return whole(measured)


def with_model(ranks: CaseRanks, action: Callable[[], _Found]) -> _Found:
    """Return what `action` finds with the model that it builds, and release the model.

    Raises:
        NotRunnable, NotFiniteByBackend: training was not finite; the message says why.
    """
    not_finite: NotFinite | None = None
    try:
        found = action()
    except NotFinite as error:
        not_finite = error.with_traceback(None)  # its frames hold the model
    ranks.everywhere(CaseRank.release)
    if not_finite is not None:
        own = ranks.own
        free_memory(own.device)
        build = partial(prepared_model, own.model_class, own.case, own.device)
        raise why_not_measured(not_finite, own.case, build)
    return found


def has_code_to_check(case: Case) -> bool:
    """Whether the check judges the code that was timed: not in eager, nor where several ranks share the case."""
    return case.backend != EAGER and case.world == 1


def check_results(ranks: CaseRanks, stages: Stages, *, timed: TimedRuns | None = None) -> Check:
    """Check the case with new models, after the measured model was released.

    `timed` holds the results of the code that was timed, if there are any.
    """
    own = ranks.own
    free_memory(own.device)
    if ranks.size > 1:
        stages.enter(Stage.CHECK)
        return check_ranks(ranks, own.case)
    stages.enter(Stage.HOLD)
    stages.enter(Stage.CHECK)
    return check_case(own.case, own.spec, own.model_class, own.device, timed=timed)


def _measure_model(
    ranks: CaseRanks,
    case: Case,
    spec: ModelSpec,
    device: torch.device,
    settings: Settings,
    stages: Stages,
    window: Callable[[], Any],
    keep: Callable[[Measured], object],
) -> Measured:
    """Measure all but the check.

    Eager is warmed up, and its memory is read, before anything is compiled, so that eager's figures do not include the
    memory of a compiler.

    Raises:
        NotFinite: training is not finite after a variant's warm-up, or after the timing.
    """
    flags = build_everywhere(ranks, stages)
    own = ranks.own
    model, finite = own.model, own.finite

    stages.enter(Stage.WARM_UP)
    clock, gate = ranks.clock(DeviceClock(device)), ranks.gate()
    patient = ranks.clock(PatientClock(device))
    watch_of_eager = watch_compilation()
    with refusals_are_skips(case.precision):
        eager = warmed_up(ranks, EAGER_VARIANT, patient, settings)
    require_eager(model, watch_of_eager)
    warm = eager.warm
    finite.require(
        eager.steps, loss_is_finite=warm.result_is_finite, candidate_stepped=False, makes_updates=warm.makes_updates
    )
    ranks.everywhere(CaseRank.inspect)
    inspection = own.inspection
    eager.steps += 1
    check_precision(model, case.precision, spec.native_dtype, inspection)
    runs = [eager]

    if case.backend != EAGER:
        stages.enter(Stage.COMPILE)
        watch = watch_compilation()
        ranks.everywhere(CaseRank.import_backend)
        make = partial(ranks.everywhere, CaseRank.add_candidate)
        runs.append(warmed_up(ranks, CANDIDATE_VARIANT, patient, settings, make=make, watch=watch))
        steps = sum(run.steps for run in runs)
        warm = runs[1].warm
        finite.require(
            steps, loss_is_finite=warm.result_is_finite, candidate_stepped=True, makes_updates=warm.makes_updates
        )

    with ranks.quiet():
        stages.enter(Stage.WAIT)
        window()
        stages.enter(Stage.MEASURE)
        ranks.everywhere(CaseRank.forget_steps)
        timing = _time_in_turns(ranks, runs, clock, gate, settings)
        rank_steps_s = ranks.everywhere(CaseRank.step_medians_s)
        slowest_s = max(run.step_s for run in runs)
        for run in runs:
            run.back_to_back = measure_throughput(run.variant, clock, gate, timing.latency.blocks, slowest_s)
        if case.mode is Mode.TRAIN:
            _require_finite(finite, model, runs, timing.latency)
        for run in runs:
            run.count_late_graphs(settings)
        figures = partial(_figures, ranks, runs, timing, gate, flags, rank_steps_s, settings)
        keep(figures())
        ranks.everywhere(CaseRank.release_core)  # threads that a pass starts would be pinned to it, too
        _make_passes(ranks, runs, clock, settings, in_window=True)
    for run in runs:
        run.count_late_graphs(settings)

    stages.enter(Stage.EXAMINE)
    _make_passes(ranks, runs, clock, settings, in_window=False)
    return figures()


def _make_passes(
    ranks: CaseRanks, runs: Sequence[VariantRun], clock: DeviceClock, settings: Settings, *, in_window: bool
) -> None:
    """Make the passes of the window, or those after it, that are asked for or always made."""
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
                run.found.append(measure(context))


def _figures(
    ranks: CaseRanks,
    runs: Sequence[VariantRun],
    timing: _Timing,
    gate: HostGate,
    flags: dict[str, str],
    rank_steps_s: Sequence[dict[str, float]],
    settings: Settings,
) -> Measured:
    """Return all figures measured so far. A check that was asked for is not made yet."""
    own = ranks.own
    case, model = own.case, own.model
    found = {run.variant.name: run.fields() for run in runs}
    return Measured(
        **only_of(Measured, {name: value for fields in found.values() for name, value in fields.items()}),
        blocks=timing.latency.blocks,
        stop_reason=timing.latency.stop_reason,
        variants={run.variant.name: run.result(found[run.variant.name]) for run in runs},
        samples_per_step=model.samples_per_step * (1 if case.parallel is Parallel.TP else case.world),
        sample_unit=model.sample_unit,
        bytes_read_per_step=None if case.parallel is Parallel.TP else model.bytes_read_per_step,  # a rank reads a part
        parameters=count_parameters(model),
        operator_dtypes=own.inspection.operator_dtypes,
        precision_flags=flags,
        unequal_work=next((rule.reason for rule in own.spec.unequal_work if rule.matches(case)), ""),
        host_syncs=own.spec.syncs.get(case.mode) if own.device.type != "cpu" else None,  # the CPU is its own host
        threads=torch.get_num_threads(),
        device_name=facts.device_name(own.device),
        device_state_before=timing.states_before[0],
        device_state_after=timing.states_after[0],
        device_wait_s=timing.device_wait_s,
        device_was_busy=timing.device_was_busy,
        host_loop_s=timing.host_loop_s,
        host=HostWatch(
            undisturbed_s=gate.undisturbed_s,
            fast_cores=gate.fast_cores,
            one_core=own.gate.one_core and bool(gate.fast_cores),
            looks_s=tuple(round(look_s, 7) for look_s in gate.looks_s),
            matters=gate.matters,
            waited_s=gate.waited_s,
            was_slow=timing.latency.host_was_slow,
            redone=timing.latency.redone,
        ),
        ranks=tuple(
            RankResult(
                step_s=step_s,
                memory={run.variant.name: run.memories[rank] for run in runs},
                communication={
                    name: one["communication"][rank] for name, one in found.items() if "communication" in one
                },
                device_state_before=timing.states_before[rank],
                device_state_after=timing.states_after[rank],
            )
            for rank, step_s in enumerate(rank_steps_s)
        )
        if ranks.size > 1
        else (),
        check=Check(status=CheckStatus.NOT_REACHED) if Pass.CHECK in settings.passes else None,
    )


def build_everywhere(ranks: CaseRanks, stages: Stages) -> dict[str, str]:
    """Build and prepare the model in all ranks. Return PyTorch's flags of precision as they are then."""
    stages.enter(Stage.BUILD)
    if ranks.size > 1:
        ranks.meet()
    ranks.everywhere(CaseRank.build)
    stages.enter(Stage.PREPARE)
    return ranks.everywhere(CaseRank.prepare)[0]


def count_parameters(model: Model) -> int:
    """Return how many numbers the parameters of all networks have."""
    return sum(p.numel() for network in model.networks().values() for p in network.parameters())


def prepared_model(model_class: type[Model], case: Case, device: torch.device) -> Model:
    """Return the model of a case as it is before its first step."""
    assert case.batch_size is not None
    model, _ = keeping_state(partial(model_class, case.mode, device, case.batch_size, seed=case.seed))
    apply_precision(model, case.precision)
    apply_memory_format(model, case.memory_format)
    return model


def _require_finite(finite: FiniteWatch, model: Model, runs: Sequence[VariantRun], latency: Latency) -> None:
    """Require that all is finite after the timing, with the loss of one more step of each variant, which learns.

    The number of steps is rather over- than underestimated: some steps are not counted.
    """
    steps = sum(run.steps for run in runs)
    steps += sum(len(block.samples_s) for block in (*latency.blocks, *latency.redone)) + latency.other_steps
    steps += sum(one.steps for run in runs for one in run.back_to_back)
    for run in runs:
        run.variant.select()
        loss, scale = run.variant.step(), loss_scale(model)
        if model.scaler is not None:  # the first step may be skipped: a scale that has just grown may be too large
            loss = run.variant.step()
        finite.require(
            steps + steps // 5,
            loss_is_finite=is_finite(loss),
            candidate_stepped=len(runs) > 1,
            makes_updates=loss_scale(model) >= scale,
        )


@dataclass(frozen=True, kw_only=True)
class _Timing:
    """The latency pass, and the state of devices and host around it. Other fields are those of `Measured`."""

    latency: Latency
    device_wait_s: float | None
    device_was_busy: bool
    states_before: Sequence[DeviceState | None]  # of each rank's device
    states_after: Sequence[DeviceState | None]
    host_loop_s: tuple[float, ...]


def _host_shares(runs: Sequence[VariantRun], clock: DeviceClock) -> Iterator[float]:
    for run in runs:
        run.variant.select()
        yield host_share(run.variant.step, clock)
        run.steps += HOST_SHARE_STEPS


def _time_in_turns(
    ranks: CaseRanks, runs: Sequence[VariantRun], clock: DeviceClock, gate: HostGate, settings: Settings
) -> _Timing:
    """Wait until the devices are idle and the host is fast, step until steps are steady, and time blocks in turns."""
    waits = [found for found in ranks.everywhere(CaseRank.wait_for_device) if found is not None]
    if clock.is_asynchronous:
        gate.matters = max(_host_shares(runs, clock)) > MATTERS
    gate.wait()
    for run in runs:  # after the wait, which moves all threads to other cores
        steps, run.step_s = step_until_steady(run.variant, clock)
        run.steps += steps
    states_before, host_before_s = ranks.everywhere(CaseRank.device_state), facts.host_loop_s()
    steps_per_block = {run.variant.name: steps_in(settings.block_s, run.step_s) for run in runs}
    variants = [run.variant for run in runs]
    collect = partial(ranks.everywhere, CaseRank.collect)
    latency = measure_latency(variants, clock, gate, settings, steps_per_block=steps_per_block, collect=collect)
    states_after, host_after_s = ranks.everywhere(CaseRank.device_state), facts.host_loop_s()
    return _Timing(
        latency=latency,
        device_wait_s=max((wait_s for wait_s, _ in waits), default=None),
        device_was_busy=not all(is_idle for _, is_idle in waits),
        states_before=states_before,
        states_after=states_after,
        host_loop_s=(host_before_s, host_after_s),
    )
