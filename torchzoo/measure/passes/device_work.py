"""Find how long a device works in one step, how many kernels run, and how long the host waits, by torch.profiler."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from statistics import median, median_low
from typing import Any, NamedTuple

import torch
from torch._C._autograd import DeviceType

from torchzoo.devices import device_of
from torchzoo.measure.clock import Clock
from torchzoo.measure.passes import Fields, PassContext
from torchzoo.measure.passes.breakdown import breakdown
from torchzoo.measure.passes.profiling import (
    Activity,
    EventKind,
    Profiled,
    Span,
    activities_of,
    profile_steps,
    profiler_activity,
    union,
    within,
)

#: So many steps are profiled if they take no longer than the limit, else one: short steps vary most.
STEPS, STEPS_LIMIT_S = 3, 0.1
#: A launch that takes so much longer than the usual one waits for the device, whose queue is full.
QUEUE_IS_FULL_NS = 50_000


def measure(context: PassContext) -> Callable[[], Fields]:
    """Profile some steps, and find the work in them later: the evaluation takes the host a while."""
    steps = STEPS if STEPS * context.step_s <= STEPS_LIMIT_S else 1
    find_work = measure_device_work(context.variant.step, context.clock, context.ranks.own.device, steps)

    def fields() -> Fields:
        work = find_work()
        if work is None:
            return {}
        return {
            "device_active_s": work.active_s,
            "device_kernels": work.kernels,
            "issuing_share": work.issuing_share,
        }

    return fields


class DeviceWork(NamedTuple):
    """The work of device and host in one step: medians over the profiled steps."""

    active_s: float  # the union of the intervals in which kernels, copies and memory sets run
    kernels: int  # the number that ran; the nodes of CUDA graphs are counted one by one
    issuing_share: float | None = None  # of the time until the step returns, without waits for the device


def measure_device_work(
    step: Callable[[], Any], clock: Clock, device: torch.device, steps: int = 1
) -> Callable[[], DeviceWork | None]:
    """Profile some steps. Return a function that returns the device's work in one step.

    The function returns None on the CPU, and where torch.profiler sees no device.
    """
    activity = profiler_activity(device)
    if device.type == "cpu" or activity is None:
        return lambda: None
    profiled = profile_steps(step, clock, [activity], steps)

    def find() -> DeviceWork | None:
        events = profiled.events()
        work = device_work(list(activities_of(events, device)), profiled.spans)
        return None if work is None else work._replace(issuing_share=_issuing_share(profiled, events, device))

    return find


def device_work(activities: Sequence[Activity], spans: Sequence[Span]) -> DeviceWork | None:
    """Return the work of the device in a step of `spans`; None if the profiler could not tell."""
    found = breakdown(activities, spans, drop=0, is_nested=False)
    if not found.steps:
        return None
    active_s = median(step.active_s + step.movement_s + step.communication_s for step in found.steps)
    began_ns = [each.begin_ns for each in activities if each.kind is not EventKind.MOVEMENT]
    return DeviceWork(active_s, median_low(sum(begin <= one < end for one in began_ns) for begin, end in spans))


def _issuing_share(profiled: Profiled, events: Sequence[Any], device: torch.device) -> float | None:
    waits = union(_waits(events, device))  # threads may wait at the same time
    shares = []
    for (begin_ns, _), returned_ns in zip(profiled.spans, profiled.returned_ns, strict=True):
        if returned_ns > begin_ns:
            shares.append(1 - within(waits, (begin_ns, returned_ns)) / (returned_ns - begin_ns))
    return median(shares) if shares else None


def _waits(events: Sequence[Any], device: torch.device) -> Iterator[Span]:
    """Yield the time of each call that synchronises, and of launches that wait for room in the device's queue."""
    own = device_of(device)
    launches: dict[str, list[Any]] = defaultdict(list)
    for event in events:
        if event.device_type() != DeviceType.CPU:
            continue
        if event.name().startswith(own.wait_calls):
            yield event.start_ns(), event.start_ns() + event.duration_ns()
        elif event.name().startswith(own.launch_calls):
            launches[event.name()].append(event)
    for some in launches.values():
        usual_ns = int(median(event.duration_ns() for event in some))
        for event in some:
            if event.duration_ns() - usual_ns > QUEUE_IS_FULL_NS:
                yield event.start_ns() + usual_ns, event.start_ns() + event.duration_ns()
