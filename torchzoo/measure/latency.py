"""Latency: synchronised steps in blocks, eager and candidate taking turns A B B A."""

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
    """No garbage collection inside: what is alive now is frozen out of later collections."""
    gc.collect()
    gc.freeze()
    gc.disable()
    try:
        yield
    finally:
        gc.enable()
        gc.unfreeze()


def timed_step_s(step: Callable[[], Any], clock: Clock) -> float:
    """Wall time of one step, the device synchronised before and after."""
    clock.synchronize()
    start = clock.now_ns()
    step()
    clock.synchronize()
    return (clock.now_ns() - start) / 1e9


def measure_latency(
    variants: Sequence[Variant], clock: Clock, settings: Settings, *, steps_per_block: dict[str, int]
) -> tuple[tuple[Block, ...], StopReason]:
    """Blocks of one variant (A A A ...) or of two (A B B A  A B B A ...), until the stopping rule says so.

    A block of a variant has `steps_per_block` of its steps, so that each variant gets about the same time.
    At least one block, or one whole quad, is run whatever the time limit. Garbage is collected between rounds.
    The rule is asked each time a fifth more has been measured: the rarer the looks, the less a lucky one can mislead.
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
    """How many steps of `step_s` make `seconds`: at least one."""
    return max(1, round(seconds / step_s))


def measure_throughput(
    variant: Variant, clock: DeviceClock, blocks: tuple[Block, ...], step_s: float, *, slow_s: float = 0.5
) -> tuple[BackToBack, ...]:
    """Runs with one synchronisation at the end; or the latency blocks, where those are such runs already.

    They are on the CPU, where a step is over when it returns, and for slow steps, of which a block has a single one.
    """
    if clock.is_asynchronous and step_s < slow_s:
        return back_to_back(variant, clock, step_s=step_s)
    own = [block.samples_s for block in blocks if block.variant == variant.name]
    return tuple(BackToBack(len(samples_s), sum(samples_s)) for samples_s in own)


def back_to_back(
    variant: Variant, clock: Clock, *, step_s: float, runs: int = 7, run_s: float = 0.05, budget_s: float = 1.0
) -> tuple[BackToBack, ...]:
    """Runs of many steps with one synchronisation at the end: throughput as a training loop sees it.

    A run is about `run_s` long but at least three steps (two of slow ones), so that the host can run ahead of the
    device. As many runs as `budget_s` allows, from two to `runs`. The device's own
    time is taken around the same steps, the host's to give it the first one.
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
