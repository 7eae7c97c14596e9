"""Run steps under torch.profiler, and read what ran: kernels, copies and collectives; on the CPU, operators."""

from __future__ import annotations

import bisect
import enum
import re
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch._C._autograd import DeviceType
from torch.profiler import ProfilerActivity, profile, record_function

from torchzoo.devices import KINDS, device_of
from torchzoo.measure.clock import Clock

#: Begin and end, in nanoseconds of one clock.
Span = tuple[int, int]

BUDGET_S = 3.0
MAX_EVENTS = 200_000  # of the profiler, about a kilobyte each


class EventKind(enum.Enum):
    COMPUTE = "compute"
    MOVEMENT = "movement"
    COMMUNICATION = "communication"


@dataclass(frozen=True, slots=True)
class Activity:
    """A kernel, a copy or a memset on the device; on the CPU, an operator, or a collective of gloo.

    Times are in Unix nanoseconds.
    """

    name: str
    kind: EventKind
    begin_ns: int
    end_ns: int
    thread: int = 0


def union(intervals: Iterable[Span]) -> list[Span]:
    """Return the disjoint intervals, in order, that cover the same time."""
    joined: list[Span] = []
    for begin, end in sorted(intervals):
        if joined and begin <= joined[-1][1]:
            joined[-1] = (joined[-1][0], max(joined[-1][1], end))
        else:
            joined.append((begin, end))
    return joined


def within(disjoint: Sequence[Span], span: Span) -> int:
    """Return how much of `span` is covered by the intervals, which are disjoint and in order."""
    first = bisect.bisect_right(disjoint, span[0], key=lambda interval: interval[1])
    past = bisect.bisect_left(disjoint, span[1], key=lambda interval: interval[0])
    return sum(min(end, span[1]) - max(begin, span[0]) for begin, end in disjoint[first:past])


@dataclass(frozen=True)
class Profiled:
    """Steps that were profiled, with the begin and end of each, and when each returned (in Unix nanoseconds)."""

    profile: profile
    spans: tuple[Span, ...]
    returned_ns: tuple[int, ...]

    def events(self) -> list[Any]:
        """Return Kineto's own events: the public ones are slow to make, and the origin of their times is private."""
        kineto = self.profile.profiler
        assert kineto is not None
        assert kineto.kineto_results is not None
        return kineto.kineto_results.events()

    def how_many_fit(self, most: int) -> int:
        """Return how many steps like the last one the limits of time and events allow: at least one."""
        begin_ns, end_ns = self.spans[-1]
        by_time = int(BUDGET_S * 1e9 / (end_ns - begin_ns))
        by_events = MAX_EVENTS // max(1, len(self.events()))
        return max(1, min(most, by_time, by_events))


def profile_steps(
    step: Callable[[], Any],
    clock: Clock,
    activities: Iterable[ProfilerActivity],
    steps: int,
    *,
    record_shapes: bool = False,
) -> Profiled:
    """Take so many steps under the profiler, and synchronise the device after each."""
    spans, returned_ns = [], []
    clock.synchronize()
    with profile(activities=list(activities), record_shapes=record_shapes) as profiler:
        for _ in range(steps):
            with record_function("step"):  # shown among the host's operators
                begin_ns = time.time_ns()
                step()
                returned_ns.append(time.time_ns())
                clock.synchronize()
                spans.append((begin_ns, time.time_ns()))
    return Profiled(profiler, tuple(spans), tuple(returned_ns))


def profiler_activity(device: torch.device) -> ProfilerActivity | None:
    """Return the activity to record for a device of that type; None where the profiler can't record it."""
    return device_of(device).activity()


def activities_of(events: Iterable[Any], device: torch.device) -> Iterator[Activity]:
    """Return what ran on the device during the profiled steps."""
    return _operators(events) if device.type == "cpu" else _device_activities(events)


def _device_activities(events: Iterable[Any]) -> Iterator[Activity]:
    for event in events:
        kind = None if event.device_type() == DeviceType.CPU else _kind_on_device(event)
        if kind is not None:
            yield Activity(event.name(), kind, event.start_ns(), event.start_ns() + event.duration_ns())


def _kind_on_device(event: Any) -> EventKind | None:
    """Return the kind by kineto's category, or by the name where this PyTorch has no categories (2.11)."""
    if hasattr(event, "activity_type"):
        categories = {
            "kernel": _kind_of_kernel(event),
            "gpu_memcpy": EventKind.MOVEMENT,
            "gpu_memset": EventKind.MOVEMENT,
        }
        return categories.get(event.activity_type())
    name = event.name()
    if event.is_user_annotation() or name.endswith(" Sync") or name == "Stream Wait Event":
        return None
    return EventKind.MOVEMENT if name.startswith(("Memcpy", "Memset")) else _kind_of_kernel(event)


def _kind_of_kernel(event: Any) -> EventKind:
    return EventKind.COMMUNICATION if event.name().startswith(COLLECTIVE_KERNELS) else EventKind.COMPUTE


#: Prefixes of the names of kernels that communicate.
COLLECTIVE_KERNELS = tuple(prefix for kind in KINDS for prefix in kind.collective_kernels)
#: The prefix of gloo's operations, which run on threads of their own.
GLOO = "gloo:"
#: Operators have a namespace. The nodes of the autograd engine around them have one, too, but belong to the framework.
#: Operators that begin a collective, or wait for one, do not compute.
_OPERATOR = re.compile(r"(?!(torch::)?autograd::|c10d::|_c10d_functional::|_dtensor::|FSDP::|fsdp::)\w+::")
_COMPILED_GRAPH = re.compile(r"## Call CompiledFxGraph (\w{8})\w* ##")


def operator_name(event: Any) -> str | None:
    """Return the name of an operator, or of a graph that inductor compiled; None if the event is neither."""
    name = _COMPILED_GRAPH.sub(r"CompiledFxGraph \1", event.name())
    return name if _OPERATOR.match(name) or name != event.name() else None


def _operators(events: Iterable[Any]) -> Iterator[Activity]:
    for event in events:
        begin_ns, end_ns = event.start_ns(), event.start_ns() + event.duration_ns()
        if event.name().startswith(GLOO):
            yield Activity(event.name(), EventKind.COMMUNICATION, begin_ns, end_ns, event.start_thread_id())
            continue
        name = operator_name(event)
        if name is not None:
            yield Activity(name, EventKind.COMPUTE, begin_ns, end_ns, event.start_thread_id())


def is_device_event(event: Any) -> bool:
    """Whether an event is a kernel, a copy or a memset on a device."""
    return event.device_type() != DeviceType.CPU and _kind_on_device(event) is not None
