"""Measure the collectives of a parallel step: their time, how much of it no computation covers, and their bytes."""

from __future__ import annotations

import json
import tempfile
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from math import prod
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import torch
from torch.profiler import ProfilerActivity

from torchzoo.measure.clock import Clock
from torchzoo.measure.passes import Fields, PassContext
from torchzoo.measure.passes.profiling import (
    COLLECTIVE_KERNELS,
    GLOO,
    EventKind,
    activities_of,
    profile_steps,
    profiler_activity,
    union,
    within,
)
from torchzoo.record import Collective, CommunicationStep

if TYPE_CHECKING:
    from torchzoo.measure.case_rank import CaseRank

#: Profiled steps: enough for an interval of 95%, within the budget.
STEPS = 8
BUDGET_S = 3.0

_BYTES = {
    **dict.fromkeys(("Double", "Long", "double", "long int", "c10::complex<float>"), 8),
    **dict.fromkeys(("Float", "Int", "float", "int"), 4),
    **dict.fromkeys(("Half", "BFloat16", "Short", "c10::Half", "c10::BFloat16", "short int"), 2),
    **dict.fromkeys(("Byte", "Char", "Bool", "unsigned char", "signed char", "bool"), 1),
    **dict.fromkeys(("Float8_e4m3fn", "Float8_e5m2", "c10::Float8_e4m3fn", "c10::Float8_e5m2"), 1),
}
#: By the names of PyTorch, those of nccl-tests.
_NAMES = {
    "allreduce": "all_reduce",
    "allreduce_coalesced": "all_reduce",
    "_allgather_base": "all_gather",
    "allgather": "all_gather",
    "allgather_into_tensor_coalesced": "all_gather",
    "_reduce_scatter_base": "reduce_scatter",
    "reduce_scatter_tensor_coalesced": "reduce_scatter",
    "all_to_all": "alltoall",
    "alltoall_base": "alltoall",
}


class CollectiveCall(NamedTuple):
    """A collective, as one rank saw it."""

    name: str
    bytes: int | None  # as nccl-tests counts: the larger of input and output; None if not known
    time_ns: int


@dataclass(frozen=True)
class Communication:
    """The findings of one rank."""

    steps: tuple[CommunicationStep, ...]
    calls: tuple[tuple[CollectiveCall, ...], ...]  # of each step, in the order in which they began


def measure(context: PassContext) -> Fields:
    """Measure the collectives of all ranks, which take the same number of steps at the same time."""
    steps = max(1, min(STEPS, int(BUDGET_S / context.step_s)))
    found = [one for one in context.ranks.everywhere(_in_rank, context.variant.name, steps) if one is not None]
    if not found:
        return {}
    return {"collectives": collectives(found), "communication": [one.steps for one in found]}


def _in_rank(own: CaseRank, name: str, steps: int) -> Communication | None:
    step = own.variants[name].step
    return measure_communication(step, own.clock, own.device, world=own.world, steps=steps)


def measure_communication(
    step: Callable[[], Any], clock: Clock, device: torch.device, *, world: int, steps: int
) -> Communication | None:
    """Profile one step that does not count and `steps` that do, for the times; then as many again for the bytes.

    The bytes need the host's events in the profile, which would make a step that the host limits slower. All ranks call
    this at the same time with the same number of steps. None where torch.profiler can't see what the device does.
    """
    activity = profiler_activity(device)
    if activity is None:
        return None
    profiled = profile_steps(step, clock, [activity], 1 + steps)
    found = list(activities_of(profiled.events(), device))
    computing = union((one.begin_ns, one.end_ns) for one in found if one.kind is EventKind.COMPUTE)
    talking = union((one.begin_ns, one.end_ns) for one in found if one.kind is EventKind.COMMUNICATION)
    both = union([*computing, *talking])
    times = []
    for span in profiled.spans[1:]:
        exposed_ns = within(both, span) - within(computing, span)
        times.append(CommunicationStep((span[1] - span[0]) / 1e9, within(talking, span) / 1e9, exposed_ns / 1e9))
    calls = [_calls_of_one(step, clock, activity, world) for _ in range(1 + steps)]
    return Communication(tuple(times), tuple(calls[1:]))


def _calls_of_one(
    step: Callable[[], Any], clock: Clock, activity: ProfilerActivity, world: int
) -> tuple[CollectiveCall, ...]:
    activities = list(dict.fromkeys([ProfilerActivity.CPU, activity]))
    profiled = profile_steps(step, clock, activities, 1, record_shapes=True)
    with tempfile.TemporaryDirectory() as folder:
        trace = Path(folder) / "trace.json"
        profiled.profile.export_chrome_trace(str(trace))
        events = json.loads(trace.read_bytes())["traceEvents"]
    return tuple(call for event in sorted(events, key=lambda one: one.get("ts", 0)) if (call := call_of(event, world)))


def call_of(event: dict[str, Any], world: int) -> CollectiveCall | None:
    """Return the collective of an event of a Chrome trace: a kernel of NCCL, or an operation of gloo; or None.

    For an operation of gloo, the profiler knows only the input.
    """
    name, facts = str(event.get("name", "")), event.get("args", {})
    time_ns = round(1e3 * event.get("dur", 0))
    if name.startswith(GLOO):
        sizes = [prod(shape) for shape in facts.get("Input Dims", []) if shape]
        kinds = facts.get("Input type", [])
        each = _BYTES.get(kinds[0]) if kinds else None
        name = name.removeprefix(GLOO)
        copies = world if name == "all_gather" else 1
        return CollectiveCall(name, each * max(sizes) * copies if each and sizes else None, time_ns)
    if event.get("cat") == "kernel" and name.startswith(COLLECTIVE_KERNELS):
        called = str(facts.get("Collective name", "unknown"))
        each = _BYTES.get(facts.get("dtype", ""))
        elements = max(facts.get("In msg nelems", 0), facts.get("Out msg nelems", 0))
        return CollectiveCall(_NAMES.get(called, called), each * elements if each and elements else None, time_ns)
    return None


def collectives(ranks: Sequence[Communication]) -> tuple[Collective, ...]:
    """Return the collectives of a step over all ranks, by name.

    A rank's time in a collective includes the wait for the last rank. So the time of each call is that of the rank that
    spent least on it: the calls of the ranks belong together in their order.
    """
    count = min(len(rank.calls) for rank in ranks)
    by_step = [_shortest(rank.calls[number] for rank in ranks) for number in range(count)]
    names = dict.fromkeys(call.name for step in by_step for call in step)
    return tuple(_collective(name, by_step) for name in names)


def _shortest(ranks: Iterable[Sequence[CollectiveCall]]) -> list[CollectiveCall]:
    """Return the calls of one step, each as in the rank that spent least time on it."""
    same: dict[tuple[str, int | None, int], CollectiveCall] = {}  # by name, bytes, and number among such calls
    for calls in ranks:
        seen: dict[tuple[str, int | None], int] = defaultdict(int)
        for call in calls:
            kind = (call.name, call.bytes)
            key = (*kind, seen[kind])
            seen[kind] += 1
            if key not in same or call.time_ns < same[key].time_ns:
                same[key] = call
    return list(same.values())


def _collective(name: str, by_step: Sequence[Sequence[CollectiveCall]]) -> Collective:
    of_name = [[call for call in step if call.name == name] for step in by_step]
    sizes = [call.bytes for call in of_name[-1]]
    return Collective(
        name=name,
        calls=len(of_name[-1]),
        bytes=None if None in sizes else sum(size for size in sizes if size is not None),
        step_s=tuple(sum(call.time_ns for call in step) / 1e9 for step in of_name if step),
    )
