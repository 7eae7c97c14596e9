"""Find where a step's wall time goes by torch.profiler: the device computes, moves data, or is idle."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

import torch
from torch.profiler import ProfilerActivity, profile

from torchzoo.files import safe_name
from torchzoo.measure.clock import Clock
from torchzoo.measure.passes import Fields, PassContext
from torchzoo.measure.passes.profiling import (
    BUDGET_S,
    Activity,
    EventKind,
    Span,
    activities_of,
    profile_steps,
    profiler_activity,
    union,
    within,
)
from torchzoo.record import Breakdown, Kernel, StepTime

STEPS = 20
TRACED_STEPS = 3
TOP_KERNELS = 20


def measure(context: PassContext) -> Fields:
    """Find where the wall time goes, and keep the Chrome trace where the settings name a folder."""
    own, trace = context.ranks.own, context.settings.trace_dir
    path = None
    if trace is not None:
        path = Path(trace) / f"{safe_name(f'{own.case.label()} {context.variant.name}')}.json"
    step = context.variant.step
    return {"breakdown": measure_breakdown(step, context.clock, own.device, step_s=context.step_s, trace=path)}


def measure_breakdown(
    step: Callable[[], Any], clock: Clock, device: torch.device, *, step_s: float, trace: Path | None
) -> Breakdown:
    """Profile a few steady steps, after one that does not count. (Of slow steps there is only one, and it counts.)

    Shares are of the wall time of the *profiled* step, with the device synchronised before and after it. Under the
    profiler a kernel takes as long as without it, but each launch costs the host more. So a step that is limited by its
    launches takes longer, and is idle more, than without the profiler. To keep this effect small, only the activity of
    the device is recorded. Its times are on the clock of `time.time_ns` (kineto converts them), which is also read at
    the begin and end of a step. Nodes of CUDA graphs are seen.

    On the CPU, a step is active inside operators (all with a namespace, such as `aten::`) and inside the graphs that
    inductor compiled: the profiler can't tell their fused loops from the Python between them. A kernel's time is then
    the operator's own, without the operators inside it.

    Args:
        step: the step to profile.
        clock: of the device.
        device: the device on which the step computes.
        step_s: its usual time.
        trace: the path of a Chrome trace. For a device the trace has a few more steps, with the host's operators.

    Raises:
        RuntimeError: `trace` can't be written.
    """
    if trace is not None:
        _check_writable(trace)
    activity = profiler_activity(device)
    if activity is None:
        return _none(f"torch.profiler can't see what a device of type {device.type} does")
    is_cpu = device.type == "cpu"
    is_slow = 2 * step_s >= BUDGET_S
    profiled = profile_steps(step, clock, [activity], 1)
    if not is_slow:
        profiled = profile_steps(step, clock, [activity], 1 + profiled.how_many_fit(STEPS))  # the first does not count
    activities = list(activities_of(profiled.events(), device))
    if trace is not None:
        host_too = [ProfilerActivity.CPU, activity]
        shown = profiled if is_cpu else profile_steps(step, clock, host_too, 1 if is_slow else TRACED_STEPS)
        _write_trace(shown.profile, trace)
    return breakdown(activities, profiled.spans, drop=0 if is_slow else 1, is_nested=is_cpu, trace=trace)


def breakdown(
    activities: Sequence[Activity], spans: Sequence[Span], *, drop: int, is_nested: bool, trace: Path | None = None
) -> Breakdown:
    """Return the figures of the steps in `spans`, without the first `drop`, or the reason why there are none.

    All activities must belong to the steps in `spans`. `is_nested` says that they contain one another, as operators do.
    """
    everything = union((each.begin_ns, each.end_ns) for each in activities)
    total_ns = sum(end - begin for begin, end in everything)
    inside_ns = sum(within(everything, span) for span in spans)
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
    """Return for each span its length, the time with computation, and the times with only data movement or collectives.

    The activities of all streams and threads count together: time in which several run counts once. An activity that
    crosses a border counts on each side with its part there.
    """
    activities = list(activities)
    computing = union((each.begin_ns, each.end_ns) for each in activities if each.kind is EventKind.COMPUTE)
    moving = union((each.begin_ns, each.end_ns) for each in activities if each.kind is not EventKind.COMMUNICATION)
    busy = union((each.begin_ns, each.end_ns) for each in activities)
    times = []
    for span in spans:
        active_ns, moving_ns, busy_ns = (within(some, span) for some in (computing, moving, busy))
        parts_ns = (span[1] - span[0], active_ns, moving_ns - active_ns, busy_ns - moving_ns)
        times.append(StepTime(*(part / 1e9 for part in parts_ns)))
    return tuple(times)


def top_kernels(activities: Sequence[Activity], *, is_nested: bool, count: int = TOP_KERNELS) -> tuple[Kernel, ...]:
    """Return the names that took longest, with the sums of their calls and times; own times of nested activities."""
    own_ns = own_times_ns(activities) if is_nested else [each.end_ns - each.begin_ns for each in activities]
    calls: dict[str, int] = defaultdict(int)
    total_ns: dict[str, int] = defaultdict(int)
    for each, time_ns in zip(activities, own_ns, strict=True):
        calls[each.name] += 1
        total_ns[each.name] += time_ns
    longest = sorted(total_ns, key=lambda name: (-total_ns[name], name))[:count]
    return tuple(Kernel(name, calls[name], total_ns[name] / 1e9) for name in longest)


def own_times_ns(activities: Sequence[Activity]) -> list[int]:
    """Return the length of each activity minus that of the activities directly inside it on the same thread."""
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


def _check_writable(trace: Path) -> None:
    """Raise before anything is profiled: the exporter does not report a file that it can't open."""
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
