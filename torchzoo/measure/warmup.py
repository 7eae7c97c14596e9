"""The steps before the timing: the first one, which compiles, and more until they take the same time."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Any

from torchzoo.measure.clock import Clock
from torchzoo.measure.latency import are_alike, timed_step_s
from torchzoo.measure.stages import cpu_time_s
from torchzoo.measure.variant import Variant
from torchzoo.model.tensors import is_finite
from torchzoo.settings import Settings


@dataclass(frozen=True, kw_only=True)
class WarmUp:
    """What was seen of the steps before the timing."""

    first_step_s: float  # the step that compiles; it is not one of `steps_s`
    first_step_cpu_s: float
    first_step_peak_bytes: int | None = None  # of the device; None on the CPU
    steps_s: tuple[float, ...]  # of the steps after it, until they are steady
    result_is_finite: bool  # of the last step
    makes_updates: bool = True  # the last step: its GradScaler, if there is one, did not skip the update

    @property
    def steps(self) -> int:
        """How many steps it took, the first one included."""
        return 1 + len(self.steps_s)

    @property
    def steady_s(self) -> float:
        """How long a steady step takes: the median of the last three, for the process may have been stopped in one."""
        return median(self.steps_s[-3:])


#: A step that takes so many times as long as the median counts as so many: the process was stopped in it, while others
#: were measured.
STOPPED_IN = 10

#: Nothing was compiled in so many of the last steps: then a variant is taken to be compiled.
STEPS_WITHOUT_COMPILING = 3


def warm_up(
    variant: Variant,
    clock: Clock,
    settings: Settings,
    graphs: Callable[[], int] = lambda: 0,
    device_peak: Callable[[], int | None] = lambda: None,
    loss_scale: Callable[[], float] = lambda: 1.0,
) -> WarmUp:
    """Step until nothing was compiled in the last three steps, all made updates, and they are within 10% of each other.

    After the first step there are at least `warmup_min_steps`. The settings limit the number of steps and their time,
    with other limits while something is compiled, or a GradScaler looks for its scale: it skips updates while gradients
    overflow, and makes the scale smaller. `graphs` tells how many graphs have been compiled so far, `device_peak` the
    peak of the device's memory since this was called, and `loss_scale` the scale.
    """
    variant.select()
    cpu_before_s = cpu_time_s()
    first_step_s = timed_step_s(variant.step, clock)
    first_step_cpu_s, first_step_peak_bytes = cpu_time_s() - cpu_before_s, device_peak()
    steps_s: list[float] = []
    compiled, scales = [graphs()], [loss_scale()]  # after each step
    result: Any = None

    def is_over() -> bool:
        if len(steps_s) < settings.warmup_min_steps:
            return False
        before = max(0, len(compiled) - 1 - STEPS_WITHOUT_COMPILING)
        if compiled[-1] != compiled[before] or scales[-1] < scales[before]:
            return len(steps_s) >= settings.compiling_max_steps or taken_s(steps_s) >= settings.compiling_limit_s
        return (
            are_alike(steps_s[-3:])
            or len(steps_s) >= settings.warmup_max_steps
            or taken_s(steps_s) >= settings.warmup_limit_s
        )

    while not is_over():
        result = None  # freed before the next is made
        clock.synchronize()
        start = clock.now_ns()
        result = variant.step()
        clock.synchronize()
        steps_s.append((clock.now_ns() - start) / 1e9)
        compiled.append(graphs())
        scales.append(loss_scale())
    return WarmUp(
        first_step_s=first_step_s,
        first_step_cpu_s=first_step_cpu_s,
        first_step_peak_bytes=first_step_peak_bytes,
        steps_s=tuple(steps_s),
        result_is_finite=is_finite(result),
        makes_updates=scales[-1] >= scales[-2],
    )


def taken_s(steps_s: Sequence[float]) -> float:
    """How long the steps took together, in seconds, without the time in which the process was stopped."""
    most_s = STOPPED_IN * median(steps_s)
    return sum(min(step_s, most_s) for step_s in steps_s)


def memory_steps(settings: Settings, warm: WarmUp, *, budget_s: float = 2.0) -> int:
    """The number of steps of the memory pass: that of the settings, or fewer (at least one) to keep to `budget_s`."""
    return max(1, min(settings.memory_steps, int(budget_s / warm.steady_s)))
