"""Find how long a device works in one step, and how many kernels run, by torch.profiler."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import torch

from torchzoo.measure.clock import Clock
from torchzoo.measure.passes import Fields, PassContext
from torchzoo.measure.passes.breakdown import breakdown
from torchzoo.measure.passes.profiling import Activity, EventKind, Span, activities_of, profile_steps, profiler_activity


def measure(context: PassContext) -> Callable[[], Fields]:
    """Profile one step, and find the device's work in that step later: the evaluation takes the host a while."""
    find_work = measure_device_work(context.variant.step, context.clock, context.ranks.own.device)

    def fields() -> Fields:
        work = find_work()
        return {} if work is None else {"device_active_s": work.active_s, "device_kernels": work.kernels}

    return fields


class DeviceWork(NamedTuple):
    """The work of the device in one step."""

    active_s: float  # the union of the intervals in which kernels, copies and memory sets run
    kernels: int  # the number that ran; the nodes of CUDA graphs are counted one by one


def measure_device_work(step: Callable[[], Any], clock: Clock, device: torch.device) -> Callable[[], DeviceWork | None]:
    """Profile one step. Return a function that returns the device's work in that step.

    The function returns None on the CPU, and where torch.profiler sees no device.
    """
    activity = profiler_activity(device)
    if device.type == "cpu" or activity is None:
        return lambda: None
    profiled = profile_steps(step, clock, [activity], 1)
    return lambda: device_work(list(activities_of(profiled.events(), device)), profiled.spans)


def device_work(activities: Sequence[Activity], spans: Sequence[Span]) -> DeviceWork | None:
    """Return the work of the device in the one step of `spans`; None if the profiler could not tell."""
    found = breakdown(activities, spans, drop=0, is_nested=False)
    if not found.steps:
        return None
    (step,) = found.steps
    kernels = sum(each.kind is not EventKind.MOVEMENT for each in activities)
    return DeviceWork(step.active_s + step.movement_s + step.communication_s, kernels)
