"""Where a step's time goes: fake traces with known gaps, real steps on the CPU, what tables say of them."""

from __future__ import annotations

import json
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch._C._autograd import DeviceType

from examples import INDUCTOR, compared, measured, record, rendered, variant_result
from torchzoo import stats
from torchzoo.devices.cpu import CpuDevice
from torchzoo.measure.clock import DeviceClock
from torchzoo.measure.passes import FIELDS, Fields
from torchzoo.measure.passes import device_work as device_work_pass
from torchzoo.measure.passes.breakdown import (
    breakdown,
    measure_breakdown,
    step_times,
    top_kernels,
)
from torchzoo.measure.passes.device_work import DeviceWork, device_work, measure_device_work
from torchzoo.measure.passes.profiling import Activity, EventKind
from torchzoo.record import Breakdown, Kernel, StepTime
from torchzoo.report import one_case, units

CPU = torch.device("cpu")
MS = 1_000_000


def kernel(begin_ms: float, end_ms: float, name: str = "gemm", thread: int = 0) -> Activity:
    return Activity(name, EventKind.COMPUTE, round(begin_ms * MS), round(end_ms * MS), thread)


def copy(begin_ms: float, end_ms: float) -> Activity:
    return Activity("Memcpy HtoD", EventKind.MOVEMENT, round(begin_ms * MS), round(end_ms * MS))


def span(begin_ms: float, end_ms: float) -> tuple[int, int]:
    return round(begin_ms * MS), round(end_ms * MS)


def milliseconds(step: StepTime) -> tuple[float, float, float]:
    return tuple(pytest.approx(1e3 * seconds) for seconds in (step.wall_s, step.active_s, step.movement_s))


@pytest.mark.parametrize(
    ("activities", "wall_active_movement"),
    [
        ([], (10, 0, 0)),
        ([kernel(1, 3), kernel(5, 6)], (10, 3, 0)),  # known gaps
        ([kernel(1, 4), kernel(3, 6)], (10, 5, 0)),  # two streams: what overlaps counts once
        ([kernel(1, 8), kernel(2, 3)], (10, 7, 0)),  # one inside the other
        ([kernel(2, 4), copy(3, 6)], (10, 2, 2)),  # a copy counts as movement only where no kernel runs
        ([copy(2, 6), kernel(3, 4)], (10, 1, 3)),  # a kernel in the middle of a copy
        ([copy(2, 4), copy(3, 5)], (10, 0, 3)),
        ([kernel(-5, 2), kernel(9, 30)], (10, 3, 0)),  # across the step's borders: only the part inside
        ([kernel(-5, 0), kernel(10, 12)], (10, 0, 0)),  # they only touch the step
        ([kernel(-5, 30)], (10, 10, 0)),
    ],
)
def test_a_trace_with_known_gaps_gives_the_known_times(
    activities: list[Activity], wall_active_movement: tuple[float, float, float]
) -> None:
    (step,) = step_times(reversed(activities), [span(0, 10)])
    assert milliseconds(step) == wall_active_movement


def test_what_crosses_from_one_step_into_the_next_counts_in_each_with_its_part() -> None:
    first, second = step_times([kernel(4, 9), copy(8, 12), kernel(15, 16)], [span(0, 8), span(8, 18)])
    assert milliseconds(first) == (8, 4, 0)
    assert milliseconds(second) == (10, 2, 3)


def test_the_shares_of_several_steps_add_up_and_lie_in_their_intervals() -> None:
    steps = (StepTime(1.0, 0.9, 0.0), StepTime(1.0, 0.8, 0.1), StepTime(8.0, 0.8, 0.8))
    shares = stats.shares(Breakdown(steps=steps, kernels=()))
    assert shares is not None
    parts = (shares.active, shares.movement, shares.idle)
    assert [part.value for part in parts] == [pytest.approx(0.25), pytest.approx(0.09), pytest.approx(0.66)]
    assert sum(part.value for part in parts) == pytest.approx(1.0, abs=1e-12)
    assert all(part.low <= part.value <= part.high for part in parts)


def test_dropped_steps_count_neither_in_the_times_nor_among_the_kernels() -> None:
    found = breakdown(
        [kernel(0, 9, "first"), kernel(11, 12), kernel(21, 24)],
        [span(0, 10), span(10, 20), span(20, 30)],
        drop=1,
        is_nested=False,
    )
    assert [milliseconds(step) for step in found.steps] == [(10, 1, 0), (10, 3, 0)]
    assert found.kernels == (Kernel("gemm", 2, 0.004),)


def test_a_clock_that_is_not_the_hosts_gives_no_figures_but_a_reason() -> None:
    found = breakdown([kernel(20, 24), kernel(8, 9)], [span(0, 10)], drop=0, is_nested=False)
    assert found.steps == ()
    assert "80% of the activity lies outside the steps" in found.problem


def test_a_device_on_which_nothing_was_seen_is_not_called_idle() -> None:
    found = breakdown([], [span(0, 10)], drop=0, is_nested=False)
    assert found.steps == ()
    assert "saw nothing" in found.problem
    assert stats.shares(found) is None


def test_the_devices_work_in_a_step_is_its_time_and_the_number_of_its_kernels() -> None:
    assert device_work([kernel(1, 4), kernel(3, 6), copy(7, 9)], [span(0, 10)]) == DeviceWork(pytest.approx(0.007), 2)
    assert device_work([], [span(0, 10)]) is None


def test_of_several_profiled_steps_the_device_work_is_the_median() -> None:
    kernels = [kernel(1, 4), kernel(11, 13), kernel(14, 15), kernel(21, 26)]
    assert device_work(kernels, [span(0, 10), span(10, 20), span(20, 30)]) == DeviceWork(pytest.approx(0.003), 1)


class FakeEvent:
    def __init__(self, name: str, begin_ms: float, end_ms: float, device: DeviceType = DeviceType.CPU) -> None:
        self.name, self.device_type = (lambda: name), (lambda: device)
        self.start_ns, self.duration_ns = (lambda: int(begin_ms * MS)), (lambda: int((end_ms - begin_ms) * MS))


def test_the_host_issues_while_it_does_not_wait_for_the_device(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of the 10 ms until the step returns, 2 ms are a copy back, and 4 ms a launch into a full queue."""
    monkeypatch.setattr(CpuDevice, "wait_calls", ("cudaStreamSynchronize",))
    monkeypatch.setattr(CpuDevice, "launch_calls", ("cudaLaunch",))
    events = [
        FakeEvent("cudaStreamSynchronize", 1, 3),
        FakeEvent("cudaStreamSynchronize", 2, 3),  # in another thread, at the same time
        *(FakeEvent("cudaLaunchKernel", n, n + 0.01) for n in (3, 3.5, 4)),
        FakeEvent("cudaLaunchKernel", 5, 9.01),
        FakeEvent("cudaStreamSynchronize", 10, 12),  # after the step has returned
        FakeEvent("cudaStreamSynchronize", 3, 9, DeviceType.CUDA),
    ]
    profiled: Any = SimpleNamespace(spans=[span(0, 12)], returned_ns=[10 * MS])
    assert device_work_pass._issuing_share(profiled, events, torch.device("cpu")) == pytest.approx(0.4)


@pytest.mark.parametrize(
    ("work", "fields"),
    [
        (DeviceWork(0.007, 2, 0.5), {"device_active_s": 0.007, "device_kernels": 2, "issuing_share": 0.5}),
        (None, {}),
    ],
)
def test_the_devices_work_becomes_fields_of_the_record(
    work: DeviceWork | None, fields: Fields, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(device_work_pass, "measure_device_work", lambda *_: lambda: work)
    own = SimpleNamespace(step=None, device=None)
    context: Any = SimpleNamespace(variant=own, clock=None, ranks=SimpleNamespace(own=own), step_s=0.01)
    assert device_work_pass.measure(context)() == fields
    assert fields.keys() <= FIELDS


def test_kernels_are_ranked_by_their_total_time() -> None:
    many = [kernel(n, n + 0.5, "many") for n in range(4)]
    assert top_kernels([*many, kernel(10, 11.5, "long"), kernel(20, 20.1, "short")], is_nested=False, count=2) == (
        Kernel("many", 4, 0.002),
        Kernel("long", 1, 0.0015),
    )


def test_an_operators_own_time_is_without_that_of_those_inside_it() -> None:
    nested = [
        kernel(0, 10, "linear"),
        kernel(2, 8, "addmm"),
        kernel(3, 4, "copy_"),
        kernel(10, 11, "relu"),
        kernel(1, 9, "elsewhere", thread=7),
    ]
    own = {each.name: each.total_s * 1e3 for each in top_kernels(nested, is_nested=True)}
    assert own == pytest.approx({"elsewhere": 8, "addmm": 5, "linear": 4, "copy_": 1, "relu": 1})


def test_on_the_cpu_operators_are_active_and_python_is_not() -> None:
    matrix = torch.ones(300, 300)

    def step() -> None:
        time.sleep(0.02)
        torch.nn.functional.linear(matrix, matrix)

    found = measure_breakdown(step, DeviceClock(CPU), CPU, step_s=0.02, trace=None)
    assert found.problem == ""
    assert 2 <= len(found.steps) <= 20
    for each in found.steps:
        assert 0 < each.active_s <= each.wall_s - 0.02  # while asleep it was in no operator
        assert each.movement_s == 0
    calls = {one.name: one.calls for one in found.kernels}
    assert calls["aten::linear"] == len(found.steps)
    assert not [name for name in calls if "::" not in name]


def test_backward_is_its_operators_not_the_engine_around_them() -> None:
    weight = torch.ones(50, 50, requires_grad=True)
    found = measure_breakdown(
        lambda: (weight @ weight).sum().backward(), DeviceClock(CPU), CPU, step_s=1e-4, trace=None
    )
    names = {one.name for one in found.kernels}
    assert "aten::mm" in names
    assert not [name for name in names if "autograd" in name or "Backward" in name]


def test_what_inductor_compiled_counts_as_one_operator() -> None:
    compiled = torch.compile(lambda x: (x.sin() + x.cos()).tanh() * 3)
    argument = torch.ones(1000)
    compiled(argument)
    found = measure_breakdown(lambda: compiled(argument), DeviceClock(CPU), CPU, step_s=1e-4, trace=None)
    (graph,) = [one for one in found.kernels if one.name.startswith("CompiledFxGraph ")]
    assert graph.calls == len(found.steps)
    assert "#" not in graph.name


def test_a_slow_step_is_profiled_once() -> None:
    calls = []

    def step() -> None:
        calls.append(torch.ones(3).sum())

    found = measure_breakdown(step, DeviceClock(CPU), CPU, step_s=60.0, trace=None)
    assert len(calls) == len(found.steps) == 1


def test_the_trace_is_kept_and_shows_the_operators(tmp_path: Path) -> None:
    path = tmp_path / "trace.json"
    found = measure_breakdown(lambda: torch.ones(9).exp(), DeviceClock(CPU), CPU, step_s=1e-4, trace=path)
    assert found.trace == str(path)
    names = {event.get("name") for event in json.loads(path.read_text())["traceEvents"]}
    assert {"aten::exp", "step"} <= names


def test_a_trace_that_can_not_be_written_says_so_before_anything_is_profiled(tmp_path: Path) -> None:
    path = tmp_path / "missing" / "trace.json"
    with pytest.raises(RuntimeError, match=r"can't be written to .*trace.json: No such file"):
        measure_breakdown(pytest.fail, DeviceClock(CPU), CPU, step_s=1e-4, trace=path)


def test_a_device_that_the_profiler_does_not_know_gets_a_reason() -> None:
    found = measure_breakdown(pytest.fail, DeviceClock(CPU), torch.device("meta"), step_s=1e-4, trace=None)
    assert (found.steps, found.kernels) == ((), ())
    assert "type meta" in found.problem


@pytest.mark.gpu
@pytest.mark.parametrize("replayed", [False, True])
def test_on_a_gpu_kernels_copies_and_gaps_are_found(*, replayed: bool, tmp_path: Path) -> None:
    device = torch.device("cuda")
    matrix = torch.ones(4096, 4096, device=device)
    product = torch.empty_like(matrix)
    host = torch.ones(4 << 20, pin_memory=True)
    clock = DeviceClock(device)

    def work() -> None:
        for _ in range(5):
            torch.mm(matrix, matrix, out=product)

    work()
    clock.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        work()

    def step() -> None:
        graph.replay() if replayed else work()
        clock.synchronize()
        time.sleep(0.02)
        host.to(device, non_blocking=True)

    trace = tmp_path / "trace.json"
    found = measure_breakdown(step, clock, device, step_s=0.05, trace=trace)
    assert found.problem == ""  # so the device's events are on the clock of the steps
    began, ended = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
    began.record()
    graph.replay() if replayed else work()
    ended.record()
    clock.synchronize()
    for each in found.steps:
        assert 0.3 < each.active_s * 1e3 / began.elapsed_time(ended) < 3  # other processes may work on the device
        assert each.movement_s > 0
        assert each.wall_s - each.active_s - each.movement_s >= 0.02
    assert found.kernels[0].calls == 5 * len(found.steps)
    assert "aten::mm" in trace.read_text() or replayed
    work_of_step = measure_device_work(step, clock, device)()
    assert work_of_step is not None
    assert work_of_step.kernels == 5  # and not one launch of a graph
    assert 0.3 < work_of_step.active_s / (found.steps[-1].active_s + found.steps[-1].movement_s) < 3


PROFILED = Breakdown(
    steps=(StepTime(0.25, 0.15, 0.05),) * 6, kernels=(Kernel("void gemm<" + "x" * 90, 12, 0.9), Kernel("copy", 6, 0.3))
)


def table(outcome: object, **changes: object) -> str:
    return rendered(one_case.brief(record(outcome, **changes)), width=120)


def test_a_case_shows_its_shares_and_its_longest_kernels() -> None:
    profiled = {"eager": variant_result(breakdown=PROFILED), "candidate": variant_result()}
    outcome = measured(blocks=compared().blocks, variants=profiled)
    text = table(outcome, device="cuda", backend=INDUCTOR)
    lines = {line.split("  ")[0]: line for line in text.splitlines()}
    assert "250 ms, 1.25x latency" in lines["profiled step, of which"]
    assert "60.0% [60.0, 60.0]" in lines["device active"]
    assert "20.0% [20.0, 20.0]" in lines["data movement"]
    assert "20.0% [20.0, 20.0]" in lines["device idle"]
    assert "eager: kernels that took longest, of 6 steps" in text
    (longest,) = [line for line in text.splitlines() if "gemm<" in line]
    assert longest.split()[:2] == ["60.0%", "2"]
    assert max(map(len, text.splitlines())) <= 120


def test_on_the_cpu_it_shows_operators_against_python() -> None:
    text = table(measured(variants={"eager": variant_result(breakdown=PROFILED)}))
    assert "inside operators" in text
    assert "Python and framework" in text
    assert "data movement" not in text
    assert "operators (their own time) that took longest" in text


def test_without_a_breakdown_nothing_is_said_of_it_and_one_that_failed_says_why() -> None:
    assert "profiled" not in table(measured())
    failed = variant_result(breakdown=Breakdown(steps=(), kernels=(), problem="no permission"))
    text = table(measured(variants={"eager": failed}))
    assert "note: eager: no breakdown: no permission" in text
    assert "inside operators" not in text


def test_a_share_of_nothing_has_a_width_all_the_same() -> None:
    assert units.share(stats.median_estimate([0.0] * 6)) == "0.0% [0.0, 0.0]"
    assert units.share(stats.median_estimate([0.5])) == "50.0% (1 sample: too few for an interval)"
    assert units.share(stats.median_estimate([0.5, 0.6])) == "55.0% (2 samples: too few for an interval)"
