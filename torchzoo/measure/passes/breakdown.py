"""Where a step's wall time goes, as torch.profiler sees it: the device computes, moves data, or is idle."""

from __future__ import annotations

import bisect
import enum
import re
import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch._C._autograd import DeviceType
from torch.profiler import ProfilerActivity, profile, record_function, supported_activities

from torchzoo.measure.clock import Clock
from torchzoo.record import Breakdown, Kernel, StepTime

#: Begin and end, in nanoseconds of one clock.
Span = tuple[int, int]

STEPS = 20
BUDGET_S = 3.0
MAX_EVENTS = 200_000  # of the profiler, about a kilobyte each
TRACED_STEPS = 3
TOP_KERNELS = 20


class Kind(enum.Enum):
    COMPUTE = "compute"
    MOVEMENT = "movement"


@dataclass(frozen=True, slots=True)
class Activity:
    """A kernel, a copy or a memset on the device; on the CPU, an operator. Times in Unix nanoseconds."""

    name: str
    kind: Kind
    begin_ns: int
    end_ns: int
    thread: int = 0


def measure_breakdown(
    step: Callable[[], Any], clock: Clock, device: torch.device, *, step_s: float, trace: Path | None
) -> Breakdown:
    """Profile a few steady steps, after one that does not count. (Of slow steps there is only one, and it counts.)

    Shares are of the wall time of the *profiled* step, with the device synchronised before and after it. Under the
    profiler a kernel takes as long as without it, but each launch costs the host more. So a step that is limited by its
    launches takes longer, and is idle more, than without the profiler. To keep that small, only the device's own
    activity is recorded. Its times are on the clock of `time.time_ns` (kineto converts them), which is also read where
    a step begins and ends. Nodes of CUDA graphs are seen.

    On the CPU, a step is active inside operators (all with a namespace, such as `aten::`) and inside the graphs that
    inductor compiled: the profiler can't tell their fused loops from the Python between them. A kernel's time is then
    the operator's own, without the operators inside it.

    Args:
        step: what is profiled.
        clock: of the device.
        device: where the step computes.
        step_s: its usual time.
        trace: where a Chrome trace is kept. For a device it shows a few more steps, with the host's operators.

    Raises:
        RuntimeError: `trace` can't be written.
    """
    if trace is not None:
        _check_writable(trace)
    activity = _profiler_activity(device)
    if activity is None:
        return _none(f"torch.profiler can't see what a device of type {device.type} does")
    is_cpu = device.type == "cpu"
    is_slow = 2 * step_s >= BUDGET_S
    profiled = _profile(step, clock, [activity], 1)
    if not is_slow:
        profiled = _profile(step, clock, [activity], 1 + profiled.how_many_fit())  # the first does not count
    activities = list(_operators(profiled.events()) if is_cpu else _device_activities(profiled.events()))
    if trace is not None:
        host_too = [ProfilerActivity.CPU, activity]
        shown = profiled if is_cpu else _profile(step, clock, host_too, 1 if is_slow else TRACED_STEPS)
        _write_trace(shown.profile, trace)
    return breakdown(activities, profiled.spans, drop=0 if is_slow else 1, is_nested=is_cpu, trace=trace)


def measure_device_time(step: Callable[[], Any], clock: Clock, device: torch.device) -> Callable[[], float | None]:
    """Profile one step. The function that is returned gives the seconds in which the device worked during it.

    That is the union of kernels, copies and memory sets; None on the CPU and where torch.profiler sees no device.
    To find it out takes the host a while, so it can be done later, when it disturbs nobody.
    """
    activity = _profiler_activity(device)
    if device.type == "cpu" or activity is None:
        return lambda: None
    profiled = _profile(step, clock, [activity], 1)

    def active_s() -> float | None:
        activities = list(_device_activities(profiled.events()))
        return working_s(breakdown(activities, profiled.spans, drop=0, is_nested=False))

    return active_s


def working_s(found: Breakdown) -> float | None:
    """Seconds in which the device works during the last step of a breakdown; None if the breakdown has no steps."""
    return found.steps[-1].active_s + found.steps[-1].movement_s if found.steps else None


def breakdown(
    activities: Sequence[Activity], spans: Sequence[Span], *, drop: int, is_nested: bool, trace: Path | None = None
) -> Breakdown:
    """The figures of the steps in `spans`, without the first `drop`. If there can be none, the breakdown says why.

    All activities must belong to the steps in `spans`. `is_nested` says that they contain one another, as operators do.
    """
    everything = union((each.begin_ns, each.end_ns) for each in activities)
    total_ns = sum(end - begin for begin, end in everything)
    inside_ns = sum(_within(everything, span) for span in spans)
    if inside_ns < 0.95 * total_ns:
        outside = 100 * (1 - inside_ns / total_ns)
        return _none(f"the profiler's clock is not the host's: {outside:.0f}% of the activity lies outside the steps")
    if not total_ns:
        return _none("torch.profiler saw nothing run (is another profiler attached, or may this user not profile?)")
    kept = spans[drop:]
    begin_ns, end_ns = kept[0][0], kept[-1][1]
    return Breakdown(
        steps=step_times(activities, kept),
        kernels=top_kernels([each for each in activities if begin_ns <= each.begin_ns < end_ns], is_nested=is_nested),
        trace=None if trace is None else str(trace),
    )


def _none(problem: str) -> Breakdown:
    return Breakdown(steps=(), kernels=(), problem=problem)


def step_times(activities: Iterable[Activity], spans: Iterable[Span]) -> tuple[StepTime, ...]:
    """For each span: its length, how long something computes, and how long data moves while nothing computes.

    The activities of all streams and threads count together: time in which several run counts once. An activity that
    crosses a border counts on each side with its part there.
    """
    activities = list(activities)
    computing = union((each.begin_ns, each.end_ns) for each in activities if each.kind is Kind.COMPUTE)
    busy = union((each.begin_ns, each.end_ns) for each in activities)
    times = []
    for span in spans:
        active_ns = _within(computing, span)
        movement_ns = _within(busy, span) - active_ns
        times.append(StepTime((span[1] - span[0]) / 1e9, active_ns / 1e9, movement_ns / 1e9))
    return tuple(times)


def union(intervals: Iterable[Span]) -> list[Span]:
    """The disjoint intervals, in order, that cover the same time."""
    joined: list[Span] = []
    for begin, end in sorted(intervals):
        if joined and begin <= joined[-1][1]:
            joined[-1] = (joined[-1][0], max(joined[-1][1], end))
        else:
            joined.append((begin, end))
    return joined


def _within(disjoint: Sequence[Span], span: Span) -> int:
    """How much of `span` is covered by the intervals, which are disjoint and in order."""
    first = bisect.bisect_right(disjoint, span[0], key=lambda interval: interval[1])
    past = bisect.bisect_left(disjoint, span[1], key=lambda interval: interval[0])
    return sum(min(end, span[1]) - max(begin, span[0]) for begin, end in disjoint[first:past])


def top_kernels(activities: Sequence[Activity], *, is_nested: bool, count: int = TOP_KERNELS) -> tuple[Kernel, ...]:
    """The names that took longest, with the sums of their calls and times; of nested activities, their own times."""
    own_ns = _own_times_ns(activities) if is_nested else [each.end_ns - each.begin_ns for each in activities]
    calls: dict[str, int] = defaultdict(int)
    total_ns: dict[str, int] = defaultdict(int)
    for each, time_ns in zip(activities, own_ns, strict=True):
        calls[each.name] += 1
        total_ns[each.name] += time_ns
    longest = sorted(total_ns, key=lambda name: (-total_ns[name], name))[:count]
    return tuple(Kernel(name, calls[name], total_ns[name] / 1e9) for name in longest)


def _own_times_ns(activities: Sequence[Activity]) -> list[int]:
    """The length of each activity minus that of the activities directly inside it on the same thread."""
    own_ns = [each.end_ns - each.begin_ns for each in activities]
    open_on: dict[int, list[int]] = defaultdict(list)
    for index in sorted(range(len(activities)), key=lambda i: (activities[i].begin_ns, -activities[i].end_ns)):
        around, now = open_on[activities[index].thread], activities[index]
        while around and activities[around[-1]].end_ns <= now.begin_ns:
            around.pop()
        if around:
            own_ns[around[-1]] -= now.end_ns - now.begin_ns
        around.append(index)
    return own_ns


@dataclass(frozen=True)
class _Profiled:
    """Steps that were profiled, and when each began and ended (in Unix nanoseconds)."""

    profile: profile
    spans: tuple[Span, ...]

    def events(self) -> list[Any]:
        """Kineto's own events: the public ones are slow to make, and the moment their times count from is private."""
        kineto = self.profile.profiler
        assert kineto is not None
        assert kineto.kineto_results is not None
        return kineto.kineto_results.events()

    def how_many_fit(self) -> int:
        """How many steps like the last one the time and the number of events allow: at least one."""
        begin_ns, end_ns = self.spans[-1]
        by_time = int(BUDGET_S * 1e9 / (end_ns - begin_ns))
        by_events = MAX_EVENTS // max(1, len(self.events()))
        return max(1, min(STEPS, by_time, by_events))


def _profile(step: Callable[[], Any], clock: Clock, activities: Iterable[ProfilerActivity], steps: int) -> _Profiled:
    spans = []
    clock.synchronize()
    with profile(activities=list(activities)) as profiler:
        for _ in range(steps):
            with record_function("step"):  # shown where the host's operators are
                begin_ns = time.time_ns()
                step()
                clock.synchronize()
                spans.append((begin_ns, time.time_ns()))
    return _Profiled(profiler, tuple(spans))


def _profiler_activity(device: torch.device) -> ProfilerActivity | None:
    """The activity to record for a device of that type; None where the profiler can't record it."""
    activity: ProfilerActivity | None = getattr(ProfilerActivity, device.type.upper(), None)
    return activity if activity in supported_activities() else None  # type: ignore[no-untyped-call]


def _device_activities(events: Iterable[Any]) -> Iterator[Activity]:
    for event in events:
        kind = None if event.device_type() == DeviceType.CPU else _kind_on_device(event)
        if kind is not None:
            yield Activity(event.name(), kind, event.start_ns(), event.start_ns() + event.duration_ns())


def _kind_on_device(event: Any) -> Kind | None:
    """The kind by kineto's category, or by the name where this PyTorch has no categories (2.11)."""
    if hasattr(event, "activity_type"):
        categories = {"kernel": Kind.COMPUTE, "gpu_memcpy": Kind.MOVEMENT, "gpu_memset": Kind.MOVEMENT}
        return categories.get(event.activity_type())
    name = event.name()
    if event.is_user_annotation() or name.endswith(" Sync") or name == "Stream Wait Event":
        return None
    return Kind.MOVEMENT if name.startswith(("Memcpy", "Memset")) else Kind.COMPUTE


#: Operators have a namespace. The autograd engine's nodes around them have one, too, but are the framework's.
_OPERATOR = re.compile(r"(?!autograd::|torch::autograd::)\w+::")
_COMPILED_GRAPH = re.compile(r"## Call CompiledFxGraph (\w{8})\w* ##")


def _operators(events: Iterable[Any]) -> Iterator[Activity]:
    for event in events:
        name = _COMPILED_GRAPH.sub(r"CompiledFxGraph \1", event.name())
        if _OPERATOR.match(name) or name != event.name():
            begin_ns, end_ns = event.start_ns(), event.start_ns() + event.duration_ns()
            yield Activity(name, Kind.COMPUTE, begin_ns, end_ns, event.start_thread_id())


def _check_writable(trace: Path) -> None:
    """Raise before anything is profiled: the exporter is silent about a file that it can't open."""
    try:
        trace.write_bytes(b"")
    except OSError as error:
        raise _cannot_keep(trace, error.strerror) from error


def _write_trace(profiled: profile, trace: Path) -> None:
    profiled.export_chrome_trace(str(trace))
    if not trace.stat().st_size:
        raise _cannot_keep(trace, "the profiler wrote nothing")


def _cannot_keep(trace: Path, why: str | None) -> RuntimeError:
    return RuntimeError(f"the Chrome trace can't be written to {trace}: {why}")
