"""The steps before the timing: the first one, which compiles, and more until they take the same time."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch.utils._pytree import tree_leaves

from torchzoo.case import Settings
from torchzoo.measure.clock import Clock
from torchzoo.measure.latency import timed_step_s
from torchzoo.measure.stages import cpu_time_s
from torchzoo.measure.variant import Variant


@dataclass(frozen=True, kw_only=True)
class WarmUp:
    """The first step (which compiles), the steps after it until they are steady, and whether the last was finite."""

    first_step_s: float
    first_step_cpu_s: float
    steps_s: tuple[float, ...]
    result_is_finite: bool

    @property
    def steady_s(self) -> float:
        """Seconds of the last step."""
        return self.steps_s[-1]


def warm_up(variant: Variant, clock: Clock, settings: Settings) -> WarmUp:
    """Steps until the last three are within 10% of each other, or the settings' limits; at least the minimum."""
    variant.select()
    cpu_before_s = cpu_time_s()
    first_step_s = timed_step_s(variant.step, clock)
    first_step_cpu_s = cpu_time_s() - cpu_before_s
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


def step_until_steady(variant: Variant, clock: Clock, usual_s: float, *, limit_s: float = 2.0) -> None:
    """Steps until two are within 10% of each other, or one is of the usual time, or `limit_s` is over.

    The device may have rested since the warm-up, or may still be at the last work of a sibling that was stopped.
    """
    variant.select()
    spent_s, before_s = 0.0, usual_s
    while spent_s < limit_s:
        now_s = timed_step_s(variant.step, clock)
        if abs(now_s - before_s) <= 0.1 * before_s:
            return
        before_s = now_s
        spent_s += now_s


def memory_steps(settings: Settings, warm: WarmUp, *, budget_s: float = 2.0) -> int:
    """How many steps the memory pass takes: as the settings say, fewer if they take longer than `budget_s`."""
    return max(1, min(settings.memory_steps, int(budget_s / warm.steady_s)))


def _is_finite(result: Any) -> bool:
    floating = [leaf for leaf in tree_leaves(result) if isinstance(leaf, torch.Tensor) and leaf.is_floating_point()]
    return all(bool(tensor.isfinite().all()) for tensor in floating)
