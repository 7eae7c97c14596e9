"""Take the steps before the timing: the first, which compiles, and more until they take the same time."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Any

from torchzoo.measure.clock import Clock, cpu_time_s
from torchzoo.measure.latency import are_alike, timed_step_s
from torchzoo.measure.variant import Variant
from torchzoo.model.tensors import is_finite
from torchzoo.settings import Settings


@dataclass(frozen=True, kw_only=True)
class WarmUp:
    """The times and findings of the steps before the timing."""

    first_step_s: float  # the step that compiles, which is not in `steps_s`
    first_step_cpu_s: float
    first_step_peak_bytes: int | None = None  # of the device; None on the CPU
    steps_s: tuple[float, ...]  # of the later steps, until they are steady
    result_is_finite: bool  # of the last step
    makes_updates: bool = True  # whether the GradScaler, if there is one, did not skip the update of the last step

    @property
    def steps(self) -> int:
        """The number of steps, with the first."""
        return 1 + len(self.steps_s)

    @property
    def steady_s(self) -> float:
        """The time of a steady step: the median of the last three, since the process may have been stopped in one."""
        return median(self.steps_s[-3:])


#: The longest time of a step in multiples of the median: in longer steps the process was stopped, while other cases
#: were measured.
STOPPED_IN = 10

#: A variant counts as compiled if so many of the last steps compiled nothing.
STEPS_WITHOUT_COMPILING = 3


def warm_up(
    variant: Variant,
    clock: Clock,
    settings: Settings,
    graphs: Callable[[], int] = lambda: 0,
    device_peak: Callable[[], int | None] = lambda: None,
    loss_scale: Callable[[], float] = lambda: 1.0,
) -> WarmUp:
    """Step until the last three steps compiled nothing, all made updates, and they are within 10% of each other.

    After the first step there are at least `warmup_min_steps`. The settings limit the number of steps and their time,
    with other limits while something is compiled, or a GradScaler searches for its scale: it skips updates while
    gradients overflow, and reduces the scale. `graphs` returns the number of graphs compiled so far, `device_peak` the
    peak of the device's memory since the call of this function, and `loss_scale` the scale.
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
        result = None  # freed before the next result is made
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
    """Return the sum of the times of steps in seconds, without the time in which the process was stopped."""
    most_s = STOPPED_IN * median(steps_s)
    return sum(min(step_s, most_s) for step_s in steps_s)


def memory_steps(settings: Settings, warm: WarmUp, *, budget_s: float = 2.0) -> int:
    """Return the number of steps of the memory pass: as in the settings, or fewer (at least one) for `budget_s`."""
    return max(1, min(settings.memory_steps, int(budget_s / warm.steady_s)))
