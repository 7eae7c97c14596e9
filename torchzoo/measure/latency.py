"""Latency, as synchronised steps in blocks of eager and candidate in turns (A B B A); and throughput."""

from __future__ import annotations

import contextlib
import gc
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from torchzoo import stats
from torchzoo.case import Settings
from torchzoo.measure.clock import Clock, DeviceClock
from torchzoo.measure.stopping import stop_reason
from torchzoo.measure.variant import Variant
from torchzoo.record import BackToBack, Block, StopReason


@contextlib.contextmanager
def quiet_python() -> Iterator[None]:
    """Turn garbage collection off. Collections by hand inside do not look at what is alive now (`gc.freeze`)."""
    gc.collect()
    gc.freeze()
    gc.disable()
    try:
        yield
    finally:
        gc.enable()
        gc.unfreeze()


def timed_step_s(step: Callable[[], Any], clock: Clock) -> float:
    """Wall time of one step, with the device synchronised before and after it."""
    clock.synchronize()
    start = clock.now_ns()
    step()
    clock.synchronize()
    return (clock.now_ns() - start) / 1e9


def measure_latency(
    variants: Sequence[Variant], clock: Clock, settings: Settings, *, steps_per_block: dict[str, int]
) -> tuple[tuple[Block, ...], StopReason]:
    """Time blocks of one variant (A A A ...) or of two (A B B A  A B B A ...) until the stopping rule ends the pass.

    A block is as many steps of a variant as `steps_per_block` says, so that each variant gets about the same time. A
    round is one block, or four with two variants. There is at least one round, whatever the time limit. Garbage is
    collected between rounds. The rule is asked only when there is a fifth more to judge by than the last time: each
    time it is asked, values that are close by luck can end the pass too early.
    """
    turns = variants if len(variants) == 1 else [variants[i] for i in (0, 1, 1, 0)]
    blocks: list[Block] = []
    next_look = 1
    began = clock.now_ns()
    while True:
        for variant in turns:
            variant.select()
            blocks.append(
                Block(
                    variant.name, tuple(timed_step_s(variant.step, clock) for _ in range(steps_per_block[variant.name]))
                )
            )
        gc.collect()
        values = stats.block_times_s(blocks, variants[0].name) if len(variants) == 1 else stats.quad_ratios(blocks)
        samples = len(blocks) // len(variants) * min(steps_per_block.values())
        elapsed_s = (clock.now_ns() - began) / 1e9
        if len(values) >= next_look or elapsed_s >= settings.time_limit_s:
            next_look = int(1.2 * len(values)) + 1
            reason = stop_reason(values, samples=samples, elapsed_s=elapsed_s, settings=settings)
            if reason is not None:
                return tuple(blocks), reason


def steps_in(seconds: float, step_s: float) -> int:
    """How many steps of `step_s` take about `seconds`: at least one."""
    return max(1, round(seconds / step_s))


def measure_throughput(
    variant: Variant, clock: DeviceClock, blocks: tuple[Block, ...], step_s: float, *, slow_s: float = 0.5
) -> tuple[BackToBack, ...]:
    """Runs of steps with one synchronisation at the end.

    No new runs are made where the latency blocks are such runs: on the CPU, where a step is over when it returns, and
    for slow steps, since a block has only one of them.
    """
    if clock.is_asynchronous and step_s < slow_s:
        return back_to_back(variant, clock, step_s=step_s)
    own = [block.samples_s for block in blocks if block.variant == variant.name]
    return tuple(BackToBack(len(samples_s), sum(samples_s)) for samples_s in own)


def back_to_back(
    variant: Variant, clock: Clock, *, step_s: float, runs: int = 7, run_s: float = 0.05, budget_s: float = 1.0
) -> tuple[BackToBack, ...]:
    """Runs of many steps with one synchronisation at the end: throughput as a training loop sees it.

    A run takes about `run_s`, but has at least three steps (two if they are slow), so that the host can run ahead of
    the device. There are from two to `runs` runs, as many as `budget_s` allows. Beside a run's wall time there is the
    device's own time for the same steps, and the host's time until the first step returned.
    """
    variant.select()
    steps = max(3 if 6 * step_s <= budget_s else 2, steps_in(run_s, step_s))
    runs = max(2, min(runs, steps_in(budget_s, steps * step_s)))
    measured = []
    for _ in range(runs):
        clock.synchronize()
        start = clock.now_ns()
        began = clock.mark()
        variant.step()
        returned = clock.now_ns()
        for _ in range(steps - 1):
            variant.step()
        ended = clock.mark()
        clock.synchronize()
        elapsed_s = (clock.now_ns() - start) / 1e9
        measured.append(BackToBack(steps, elapsed_s, clock.device_time_s(began, ended), (returned - start) / 1e9))
    return tuple(measured)
