"""Measure one case: build, prepare, warm up, compile, measure."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import psutil
import torch
from torch.utils._pytree import tree_leaves

from torchzoo import backends, environment, prepare
from torchzoo.catalog import load_model_class
from torchzoo.measure import passes
from torchzoo.measure.clock import Clock, DeviceClock
from torchzoo.measure.compilation import check_compiled, watch_compilation
from torchzoo.measure.latency import Variant, back_to_back, measure_latency, quiet_python, steps_in, timed_step_s
from torchzoo.measure.memory import measure_memory
from torchzoo.measure.quiet_device import device_probe, wait_until_idle
from torchzoo.record import (
    EAGER,
    BackToBack,
    Block,
    Case,
    Compilation,
    Measured,
    Settings,
    Stage,
    VariantResult,
)
from torchzoo.spec import Mode, ModelSpec

Tell = Callable[[Stage], None]


def measure_case(
    case: Case, spec: ModelSpec, device_name: str, settings: Settings, tell: Tell, window: Callable[[], Any]
) -> Measured:
    """Build, prepare, warm up and measure one case on the device of that name.

    `window` returns when this case may be measured, alone: until then others prepare at the same time.

    Eager is warmed up, and its memory read, before anything is compiled: what a compiler keeps is not eager's.
    """
    stages = _Stages(tell)
    device = _use_device(device_name, settings.threads)

    stages.enter(Stage.IMPORT)
    model_class = load_model_class(spec)

    stages.enter(Stage.BUILD)
    assert case.batch_size is not None
    model = model_class(case.mode, device, case.batch_size, seed=case.seed)
    step = model.train_step if case.mode is Mode.TRAIN else model.eval_step

    stages.enter(Stage.PREPARE)
    flags = prepare.apply_precision(model, case.precision)
    prepare.apply_memory_format(model, case.memory_format)

    stages.enter(Stage.WARM_UP)
    clock = DeviceClock(device)
    eager = prepare.eager_variant(model, step)
    warm = {eager.name: warm_up(eager, clock, settings)}
    memory = {eager.name: measure_memory(step, memory_steps(settings, warm[eager.name]), device)}
    inspection = prepare.inspect_step(model, step)
    prepare.check_precision(model, case.precision, spec.native_dtype, inspection)
    operator_dtypes = inspection.operator_dtypes
    variants = [eager]
    compilation: dict[str, Compilation] = {}

    if case.backend != EAGER:
        stages.enter(Stage.COMPILE)
        watch = watch_compilation()
        variants.append(prepare.candidate_variant(model, step, case, inspection))
        candidate = variants[-1]
        del inspection  # the calls it holds are not the candidate's memory
        warm[candidate.name] = warm_up(candidate, clock, settings)
        if backends.info(case.backend.name).uses_dynamo:
            compilation[candidate.name] = watch.counts(settings.cache)
            check_compiled(case.backend, compilation[candidate.name])
        memory[candidate.name] = measure_memory(candidate.step, memory_steps(settings, warm[candidate.name]), device)
        del candidate

    step_s = [result.steps_s[-1] for result in warm.values()]
    with quiet_python():
        stages.enter(Stage.WAIT)
        window()
        stages.enter(Stage.MEASURE)
        device_wait_s, device_is_idle = None, True
        if clock.is_asynchronous:
            device_wait_s, device_is_idle = wait_until_idle(device_probe(device), clock)
        for variant in variants:
            settle(variant, clock, warm[variant.name].steps_s[-1])
        state_before, host_before_s = environment.device_state(device), environment.host_loop_s()
        steps_per_block = {name: steps_in(settings.block_s, result.steps_s[-1]) for name, result in warm.items()}
        blocks, stop_reason = measure_latency(variants, clock, settings, steps_per_block=steps_per_block)
        state_after, host_after_s = environment.device_state(device), environment.host_loop_s()
        throughput = {variant.name: _back_to_back(variant, clock, blocks, max(step_s)) for variant in variants}
        steady_s = {name: result.steps_s[-1] for name, result in warm.items()}
        energies = {v.name: passes.energy(v, settings, device, steady_s[v.name]) for v in variants}
        breakdowns = {v.name: passes.breakdown(v, case, settings, device, steady_s[v.name]) for v in variants}
    for name, counted in compilation.items():  # once more: what was compiled anew while it was measured
        compilation[name] = watch.counts(settings.cache, warm_graphs=counted.graphs)

    stages.enter(Stage.EXAMINE)
    growth = {v.name: passes.growth(v, settings, device, steady_s[v.name]) for v in variants}
    eager.select()
    flops, api = passes.of_eager_step(step, settings)
    samples_per_step, sample_unit = model.samples_per_step, model.sample_unit
    parameters = sum(p.numel() for network in model.networks().values() for p in network.parameters())
    del model, step, eager, variants  # the check builds its own
    check = passes.check(case, spec, model_class, device, settings)
    stages.close()

    return Measured(
        blocks=blocks,
        stop_reason=stop_reason,
        variants={
            name: VariantResult(
                first_step_s=warm[name].first_step_s,
                first_step_cpu_s=warm[name].first_step_cpu_s,
                warmup_s=warm[name].steps_s,
                memory=memory[name],
                back_to_back=throughput[name],
                result_is_finite=warm[name].result_is_finite,
                compilation=compilation.get(name),
                breakdown=breakdowns[name],
                energy=energies[name],
                growth=growth[name],
            )
            for name in warm
        },
        samples_per_step=samples_per_step,
        sample_unit=sample_unit,
        parameters=parameters,
        operator_dtypes=operator_dtypes,
        precision_flags=flags,
        host_syncs=spec.syncs.get(case.mode),
        threads=torch.get_num_threads(),
        device_name=environment.device_name(device),
        device_state_before=state_before,
        device_state_after=state_after,
        device_wait_s=device_wait_s,
        device_was_busy=not device_is_idle,
        host_loop_s=(host_before_s, host_after_s),
        stage_seconds=stages.seconds,
        stage_cpu_seconds=stages.cpu_seconds,
        flops=flops,
        api=api,
        check=check,
    )


class _Stages:
    """Tells the parent which stage begins, and keeps how long each took, by the wall clock and in CPU time."""

    def __init__(self, tell: Tell) -> None:
        self._tell = tell
        self._current: Stage | None = None
        self._began = (0.0, 0.0)
        self.seconds: dict[str, float] = {}
        self.cpu_seconds: dict[str, float] = {}

    def enter(self, stage: Stage) -> None:
        self.close()
        self._current, self._began = stage, (time.perf_counter(), _cpu_time_s())
        self._tell(stage)

    def close(self) -> None:
        if self._current is not None:
            self.seconds[self._current] = time.perf_counter() - self._began[0]
            self.cpu_seconds[self._current] = _cpu_time_s() - self._began[1]


def _use_device(name: str, threads: int | None) -> torch.device:
    device = torch.device(name)
    if threads is not None:
        torch.set_num_threads(threads)
    if device.type != "cpu":
        device = torch.device(device.type, device.index or 0)
        torch.accelerator.set_device_index(device)
    return device


@dataclass(frozen=True, kw_only=True)
class WarmUp:
    """The first step (which compiles), the steps after it until they are steady, and whether the last was finite."""

    first_step_s: float
    first_step_cpu_s: float
    steps_s: tuple[float, ...]
    result_is_finite: bool


def warm_up(variant: Variant, clock: Clock, settings: Settings) -> WarmUp:
    """Steps until the last three are within 10% of each other, or the settings' limits; at least the minimum."""
    variant.select()
    cpu_before_s = _cpu_time_s()
    first_step_s = timed_step_s(variant.step, clock)
    first_step_cpu_s = _cpu_time_s() - cpu_before_s
    steps_s: list[float] = []
    result: Any = None
    while len(steps_s) < settings.warmup_min_steps or not (
        max(steps_s[-3:]) <= 1.1 * min(steps_s[-3:])
        or len(steps_s) >= settings.warmup_max_steps
        or sum(steps_s) >= settings.warmup_limit_s
    ):
        result = None  # freed before the next is made
        clock.synchronize()
        start = clock.now_ns()
        result = variant.step()
        clock.synchronize()
        steps_s.append((clock.now_ns() - start) / 1e9)
    return WarmUp(
        first_step_s=first_step_s,
        first_step_cpu_s=first_step_cpu_s,
        steps_s=tuple(steps_s),
        result_is_finite=_is_finite(result),
    )


def memory_steps(settings: Settings, warm: WarmUp, *, budget_s: float = 2.0) -> int:
    """As many as the settings say, fewer where they would take longer than `budget_s`, at least one."""
    return max(1, min(settings.memory_steps, int(budget_s / warm.steps_s[-1])))


def settle(variant: Variant, clock: Clock, usual_s: float, *, limit_s: float = 2.0) -> None:
    """Steps until two are within 10% of each other, or one of the usual time: the device may have rested before.

    (Or it may be at the last work of a sibling that was stopped.)
    """
    variant.select()
    spent_s, before_s = 0.0, usual_s
    while spent_s < limit_s:
        now_s = timed_step_s(variant.step, clock)
        if abs(now_s - before_s) <= 0.1 * before_s:
            return
        before_s = now_s
        spent_s += now_s


def _cpu_time_s() -> float:
    """CPU time of this process and of its children, those that are alive (compilers' pools) and those that ended."""
    own = psutil.Process()
    total = 0.0
    for process in [own, *own.children(recursive=True)]:
        with contextlib.suppress(psutil.NoSuchProcess):
            times = process.cpu_times()
            total += times.user + times.system + times.children_user + times.children_system
    return total


def _is_finite(result: Any) -> bool:
    floating = [leaf for leaf in tree_leaves(result) if isinstance(leaf, torch.Tensor) and leaf.is_floating_point()]
    return all(bool(tensor.isfinite().all()) for tensor in floating)


def _back_to_back(
    variant: Variant, clock: DeviceClock, blocks: tuple[Block, ...], step_s: float, *, slow_s: float = 0.5
) -> tuple[BackToBack, ...]:
    """Runs of their own; or the latency blocks, where those are runs with one synchronisation at the end already.

    They are on the CPU, where a step is over when it returns, and for slow steps, of which a block has a single one.
    """
    if clock.is_asynchronous and step_s < slow_s:
        return back_to_back(variant, clock, step_s=step_s)
    own = [block.samples_s for block in blocks if block.variant == variant.name]
    return tuple(BackToBack(len(samples_s), sum(samples_s)) for samples_s in own)
