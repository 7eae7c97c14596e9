"""Profile the operators of a step by name, shapes and dtypes of operands: how often they run, and how long."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple

import torch
from torch.profiler import ProfilerActivity

from torchzoo.measure.clock import Clock
from torchzoo.measure.passes import Fields, PassContext
from torchzoo.measure.passes.breakdown import own_times_ns
from torchzoo.measure.passes.profiling import (
    BUDGET_S,
    Activity,
    EventKind,
    Span,
    is_device_event,
    operator_name,
    profile_steps,
    profiler_activity,
)
from torchzoo.record import Operand, OperatorCalls, OperatorShapes

STEPS = 3
MOST = 1_000  # the longest combinations of operator and operands, which a record keeps

#: Dtypes by the profiler's names, which are those of C++.
_DTYPES = {
    "float": "float32",
    "double": "float64",
    "c10::Half": "float16",
    "c10::BFloat16": "bfloat16",
    "c10::Float8_e4m3fn": "float8_e4m3fn",
    "c10::Float8_e5m2": "float8_e5m2",
    "c10::complex<float>": "complex64",
    "c10::complex<double>": "complex128",
    "unsigned char": "uint8",
    "signed char": "int8",
    "short": "int16",
    "short int": "int16",
    "int": "int32",
    "long": "int64",
    "long int": "int64",
    "bool": "bool",
}
_NO_TENSORS = frozenset({"", "Scalar", "ScalarList", "None"})
_LIST = "TensorList"


class _Call(NamedTuple):
    """A call of an operator, with the time that counts for it."""

    name: str
    operands: tuple[Operand, ...]
    begin_ns: int
    time_ns: int


def measure(context: PassContext) -> Fields:
    """List the operators with their shapes and times."""
    step, device = context.variant.step, context.ranks.own.device
    return {"operator_shapes": measure_operator_shapes(step, context.clock, device, step_s=context.step_s)}


def measure_operator_shapes(
    step: Callable[[], Any], clock: Clock, device: torch.device, *, step_s: float
) -> OperatorShapes:
    """Profile a few steady steps with shapes, after one that does not count. (Of slow steps the only one counts.)

    Recording shapes costs the host time, so these steps are slower than timed steps, but the kernels of a device are
    not. The result is meant for shares of the operators' time.

    On a device, a kernel belongs to the innermost operator that started it, and operators that start none are left out.
    A kernel that no operator started, such as one that inductor wrote or one of a CUDA graph, is listed by its own
    name; kernels of inductor have the shapes that the profiler knows. On the CPU, an operator counts with its own time,
    without the operators inside it, and code that inductor compiled is one entry for each graph.
    """
    activity = profiler_activity(device)
    if activity is None:
        return OperatorShapes(steps=0, problem=f"torch.profiler can't see what a device of type {device.type} does")
    activities = list(dict.fromkeys([ProfilerActivity.CPU, activity]))
    is_slow = 2 * step_s >= BUDGET_S
    profiled = profile_steps(step, clock, activities, 1, record_shapes=True)
    if not is_slow:
        count = 1 + profiled.how_many_fit(STEPS)
        profiled = profile_steps(step, clock, activities, count, record_shapes=True)
    calls = calls_on_the_cpu(profiled.events()) if device.type == "cpu" else calls_on_a_device(profiled.events())
    return operator_shapes(calls, profiled.spans[0 if is_slow else 1 :])


def calls_on_the_cpu(events: Iterable[Any]) -> list[_Call]:
    """Return the operators, each with its own time."""
    named = [(event, name) for event in events if (name := operator_name(event)) is not None]
    activities = [
        Activity(
            name, EventKind.COMPUTE, event.start_ns(), event.start_ns() + event.duration_ns(), event.start_thread_id()
        )
        for event, name in named
    ]
    own_ns = own_times_ns(activities)
    return [
        _Call(name, operands_of(event), event.start_ns(), max(0, time_ns))
        for (event, name), time_ns in zip(named, own_ns, strict=True)
    ]


def calls_on_a_device(events: Iterable[Any]) -> list[_Call]:
    """Return the operators that started kernels, with the time of these kernels, and all other kernels."""
    events = list(events)
    kernels = [event for event in events if is_device_event(event)]
    started_by = {kernel.linked_correlation_id() for kernel in kernels} - {0}
    hosts: dict[int, Any] = {}
    for event in events:
        number = event.correlation_id()
        is_host = not is_device_event(event) and not event.linked_correlation_id()
        if number in started_by and is_host and (number not in hosts or operator_name(event) is not None):
            hosts[number] = event
    time_ns: dict[int, int] = defaultdict(int)
    calls: list[_Call] = []
    for kernel in kernels:
        host = hosts.get(kernel.linked_correlation_id())
        if host is not None and operator_name(host) is not None:
            time_ns[kernel.linked_correlation_id()] += kernel.duration_ns()
        else:
            operands = operands_of(host) if host is not None and host.name() == kernel.name() else ()
            calls.append(_Call(kernel.name(), operands, kernel.start_ns(), kernel.duration_ns()))
    for number, total_ns in time_ns.items():
        host = hosts[number]
        calls.append(_Call(operator_name(host) or host.name(), operands_of(host), host.start_ns(), total_ns))
    return calls


def operands_of(event: Any) -> tuple[Operand, ...]:
    """Return the tensors that an operator takes. Up to torch 2.11 the profiler does not give the length of lists."""
    shapes: Sequence[Any] = event.shapes()
    structured: Sequence[Any] = event.structured_input_shapes() if hasattr(event, "structured_input_shapes") else ()
    if len(structured) == len(shapes):
        shapes = structured
    found = []
    for dtype, shape in zip(event.dtypes(), shapes, strict=False):
        if dtype == _LIST:
            found.append(Operand("list", (len(shape),) if shape else ()))
        elif dtype not in _NO_TENSORS:
            found.append(Operand(_DTYPES.get(dtype, dtype), tuple(shape)))
    return tuple(found)


def operator_shapes(calls: Iterable[_Call], spans: Sequence[Span], *, most: int = MOST) -> OperatorShapes:
    """Add up the calls in these spans of time by operator and operands."""
    begin_ns, end_ns = spans[0][0], spans[-1][1]
    count: dict[tuple[str, tuple[Operand, ...]], int] = defaultdict(int)
    time_ns: dict[tuple[str, tuple[Operand, ...]], int] = defaultdict(int)
    for call in calls:
        if begin_ns <= call.begin_ns < end_ns:
            count[call.name, call.operands] += 1
            time_ns[call.name, call.operands] += call.time_ns
    if not sum(time_ns.values()):
        return OperatorShapes(steps=0, problem="torch.profiler saw nothing run")
    longest = sorted(count, key=lambda one: (-time_ns[one], one[0], str(one[1])))
    rest = longest[most:]
    return OperatorShapes(
        steps=len(spans),
        operators=tuple(OperatorCalls(*one, count[one], time_ns[one] / 1e9) for one in longest[:most]),
        others=len(rest),
        others_calls=sum(count[one] for one in rest),
        others_s=sum(time_ns[one] for one in rest) / 1e9,
    )
