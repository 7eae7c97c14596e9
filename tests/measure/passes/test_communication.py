"""Collectives of a parallel step: what a trace says of them, their bytes, their times over ranks, their bandwidth."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from torchzoo.analysis.peaks import keep_measured, measured_file, measured_key
from torchzoo.measure.passes.breakdown import step_times
from torchzoo.measure.passes.communication import (
    CollectiveCall,
    Communication,
    call_of,
    collectives,
    measure_communication,
)
from torchzoo.measure.passes.profiling import Activity, EventKind
from torchzoo.record import Collective, CommunicationStep, MeasuredPeaks, StepTime
from torchzoo.report.scaling import collective_figures, exposed_share
from torchzoo.stats import bus_factor

KERNEL = {
    "cat": "kernel",
    "name": "ncclDevKernel_AllGather_RING_LL(ncclDevKernelArgsStorage<4096ul>)",
    "dur": 12.5,
    "args": {"Collective name": "_allgather_base", "In msg nelems": 100, "Out msg nelems": 400, "dtype": "BFloat16"},
}


GLOO = {"name": "gloo:all_gather", "dur": 1, "args": {"Input Dims": [[10, 3]], "Input type": ["float"]}}


@pytest.mark.parametrize(
    ("event", "call"),
    [
        (KERNEL, CollectiveCall("all_gather", 800, 12_500)),  # the larger of what goes in and comes out
        ({**KERNEL, "args": {}}, CollectiveCall("unknown", None, 12_500)),  # as in the replay of a CUDA graph
        (GLOO, CollectiveCall("all_gather", 480, 1000)),  # tells only what goes in
        ({**GLOO, "name": "gloo:all_reduce"}, CollectiveCall("all_reduce", 120, 1000)),
        ({**KERNEL, "name": "void gemm()"}, None),
        ({**KERNEL, "cat": "cpu_op"}, None),
        ({"name": "c10d::allreduce_", "dur": 3}, None),
    ],
)
def test_what_an_event_says_of_a_collective(event: dict[str, Any], call: CollectiveCall | None) -> None:
    assert call_of(event, world=4) == call


def test_each_call_takes_as_long_as_on_the_rank_that_waited_least() -> None:
    """Rank 0 waits for rank 1 in the first call, rank 1 for rank 0 in the second. The third has another size."""
    first = (
        CollectiveCall("all_reduce", 8, 900),
        CollectiveCall("all_reduce", 8, 10),
        CollectiveCall("all_reduce", 4, 5),
        CollectiveCall("broadcast", 2, 1),
    )
    second = (
        CollectiveCall("all_reduce", 8, 20),
        CollectiveCall("all_reduce", 8, 800),
        CollectiveCall("all_reduce", 4, 6),
        CollectiveCall("broadcast", 2, 1),
    )
    found = collectives([Communication((), (first,)), Communication((), (second,))])
    assert found == (
        Collective(name="all_reduce", calls=3, bytes=20, step_s=(35e-9,)),
        Collective(name="broadcast", calls=1, bytes=2, step_s=(1e-9,)),
    )


def test_bytes_that_are_not_known_for_one_call_are_not_known_for_all() -> None:
    calls = (CollectiveCall("all_reduce", 8, 10), CollectiveCall("all_reduce", None, 10))
    assert collectives([Communication((), (calls,))])[0].bytes is None


@pytest.mark.parametrize(
    ("name", "world", "factor"),
    [
        ("all_reduce", 4, 1.5),
        ("all_reduce", 2, 1.0),
        ("all_gather", 4, 0.75),
        ("reduce_scatter", 8, 0.875),
        ("broadcast", 4, 1.0),
        ("alltoall", 2, 0.5),
    ],
)
def test_the_factors_are_those_of_nccl_tests(name: str, world: int, factor: float) -> None:
    assert bus_factor(name, world) == factor


def test_bandwidth_beside_the_measured_ceiling(tmp_path: object, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TORCHZOO_CACHE", str(tmp_path))
    peaks = MeasuredPeaks(bus_gb_per_s={"all_reduce": 300.0}, torch="2", date="D")
    keep_measured(measured_file(), measured_key("a GPU", None, 4), peaks)
    one = Collective(name="all_reduce", calls=2, bytes=10**9, step_s=(0.01, 0.005, 0.01))
    (figures,) = collective_figures([one], 4, "a GPU")
    assert figures.bus_bytes_per_s is not None
    assert figures.bus_bytes_per_s.value == pytest.approx(1.5e11)
    assert figures.bus_bytes_per_s.high == pytest.approx(3e11)
    assert figures.ceiling_bytes_per_s == 300e9
    (elsewhere,) = collective_figures([one], 2, "a GPU")  # two devices were not measured
    assert elsewhere.ceiling_bytes_per_s is None


def test_only_what_nothing_covers_is_exposed() -> None:
    """Computing from 0 to 4 s, a collective from 3 to 8, a copy from 7 to 9: for 3 s only the collective runs."""
    activities = [
        Activity("gemm", EventKind.COMPUTE, 0, 4 * 10**9),
        Activity("nccl", EventKind.COMMUNICATION, 3 * 10**9, 8 * 10**9),
        Activity("Memcpy", EventKind.MOVEMENT, 7 * 10**9, 9 * 10**9),
    ]
    assert step_times(activities, [(0, 10**10)]) == (StepTime(10.0, 4.0, 2.0, 3.0),)


def test_the_exposed_share_has_an_interval() -> None:
    share = exposed_share([CommunicationStep(1.0, 0.5, part / 10) for part in range(1, 8)])
    assert share is not None
    assert (share.value, share.low, share.high) == (0.4, 0.1, 0.7)
    assert exposed_share([]) is None


def test_a_device_that_the_profiler_does_not_know_has_no_figures() -> None:
    device = torch.device("meta")
    assert measure_communication(pytest.fail, None, device, world=2, steps=3) is None  # type: ignore[arg-type]
