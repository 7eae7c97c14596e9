"""Counts of what a step asks of the host."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import nn

from torchzoo.devices.cpu import CpuDevice
from torchzoo.measure.clock import DeviceClock
from torchzoo.measure.passes import counts
from torchzoo.record import StepCounts

CPU = torch.device("cpu")


def counted(step: Any) -> StepCounts:
    own = SimpleNamespace(device=CPU)
    context: Any = SimpleNamespace(
        variant=SimpleNamespace(step=step), ranks=SimpleNamespace(own=own), clock=DeviceClock(CPU)
    )
    found: StepCounts = counts.measure(context)["counts"]
    return found


def python_work(times: int) -> None:
    for _ in range(times):
        len([])  # a function of C
        callee()


def callee() -> None: ...


def test_python_functions_are_counted_and_not_those_of_c() -> None:
    few, many = counts.count_python_calls(lambda: python_work(3)), counts.count_python_calls(lambda: python_work(103))
    assert many - few == 100


@pytest.mark.parametrize("is_training", [False, True])
def test_counts_are_the_same_each_time_and_grow_with_the_work(is_training: bool) -> None:  # noqa: FBT001
    def of(layers: int) -> StepCounts:
        network = nn.Sequential(*(nn.Sequential(nn.Linear(4, 4), nn.ReLU()) for _ in range(layers)))
        batch = torch.ones(2, 4)

        def step() -> None:
            loss = network(batch).sum()
            if is_training:
                loss.backward()

        step()
        found = counted(step)
        assert counted(step) == found
        return found

    two, three, four = of(2), of(3), of(4)
    assert four.operators - three.operators == three.operators - two.operators > 0
    assert four.python_calls - three.python_calls == three.python_calls - two.python_calls > 0
    assert (two.launches, two.copies, two.allocations) == (None, None, None)


def test_on_a_device_launches_and_allocations_are_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where operators on the CPU are named as launches, and its allocator counts."""
    asked = iter([10, 17])
    monkeypatch.setattr(CpuDevice, "launch_calls", ("aten::add", "aten::mul"))
    monkeypatch.setattr(CpuDevice, "allocations", lambda _: next(asked))
    one = torch.ones(3)
    found = counted(lambda: one.add(1).mul(2).add(3))
    assert (found.launches, found.allocations) == (3, 7)


def test_what_watched_python_before_watches_it_again() -> None:
    import sys

    seen: list[str] = []
    sys.setprofile(lambda _frame, event, _argument: seen.append(event))
    try:
        counts.count_python_calls(callee)
        seen.clear()
        callee()
    finally:
        sys.setprofile(None)
    assert "call" in seen
