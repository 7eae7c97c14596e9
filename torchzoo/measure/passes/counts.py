"""Count what one step asks of the host: operators, Python calls, launches, copies and allocations.

Unlike times, counts do not depend on the machine's speed or on its other users.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Callable
from typing import Any

from torch.profiler import ProfilerActivity

from torchzoo.devices import device_of
from torchzoo.measure.latency import quiet_python
from torchzoo.measure.passes import Fields, PassContext
from torchzoo.measure.passes.profiling import EventKind, activities_of, profile_steps
from torchzoo.record import StepCounts

#: Calls of PyTorch's dispatcher, those inside of other operators included. Nodes of autograd are none.
_OPERATOR = re.compile(r"(?!(torch::)?autograd::|profiler::)\w+::\w")


def measure(context: PassContext) -> Fields:
    """Count in two steps: one under the profiler of Python, the other under that of PyTorch."""
    step, device = context.variant.step, context.ranks.own.device
    own = device_of(device)
    with quiet_python():
        before = own.allocations()
        python_calls = count_python_calls(step)
        context.clock.synchronize()
        after = own.allocations()
        activity = own.activity()
        activities = {ProfilerActivity.CPU} | ({activity} if activity is not None else set())
        profiled = profile_steps(step, context.clock, activities, 1)
    events = profiled.events()
    names = [event.name() for event in events]
    launches = copies = None
    if own.launch_calls:
        launches = sum(name.startswith(own.launch_calls) for name in names)
        copies = sum(one.kind is EventKind.MOVEMENT for one in activities_of(events, device))
    return {
        "counts": StepCounts(
            operators=sum(_OPERATOR.match(name) is not None for name in names),
            python_calls=python_calls,
            launches=launches,
            copies=copies,
            allocations=None if before is None or after is None else after - before,
        )
    }


def count_python_calls(step: Callable[[], Any]) -> int:
    """Count the calls of Python functions in one step, in the thread of the caller."""
    calls = 0

    def see(_frame: Any, event: str, _argument: Any) -> None:
        nonlocal calls
        calls += event == "call"

    before = sys.getprofile()
    sys.setprofile(see)
    try:
        step()
    finally:
        sys.setprofile(before)
    return calls
