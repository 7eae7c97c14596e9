"""What a worker sets before its case is measured."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
import torch

from examples import CASE, SPEC
from torchzoo.run import worker
from torchzoo.run.lanes import Lane
from torchzoo.settings import Settings

GPU = Lane(device="cuda:0", cores=(1, 2, 3))
TWO_RANKS = Lane(device="cpu", devices=("cpu", "cpu"), rank_cores=((0, 1), (2, 3, 4)))


def request_for(lane: Lane, settings: Settings | None = None, **case: Any) -> worker.Request:
    return worker.Request(
        case=msgspec.structs.replace(CASE, device=lane.device.partition(":")[0], **case),
        spec=SPEC,
        settings=settings or Settings(),
        lane=lane,
        cores=tuple(range(8)),
        undisturbed_loop_s=0.001,
        log="",
        scratch="",
        caches="",
    )


def test_inductors_own_variable_decides_how_many_processes_compile(monkeypatch: pytest.MonkeyPatch) -> None:
    counts: list[int] = []
    monkeypatch.setattr("torchzoo.measure.compilation.set_compile_processes", counts.append)
    request = request_for(Lane(device="cpu"), Settings(compile_threads=4))
    monkeypatch.delenv("TORCHINDUCTOR_COMPILE_THREADS", raising=False)
    worker._limit_compile_processes(request)
    monkeypatch.setenv("TORCHINDUCTOR_COMPILE_THREADS", "1")
    worker._limit_compile_processes(request)
    assert counts == [4]


def test_a_process_has_no_more_threads_than_cores_in_its_window(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(worker, "physical_cores", lambda cores: tuple((core,) for core in cores))
    monkeypatch.setattr(torch, "get_num_threads", lambda: 8)
    assert worker._threads(request_for(GPU)) == 3
    assert [worker._threads(request_for(TWO_RANKS, world=2), rank) for rank in (0, 1)] == [2, 3]
    assert worker._threads(request_for(GPU, Settings(threads=6))) == 6  # the user's own choice
    assert worker._threads(request_for(Lane(device="cpu"))) is None  # it has all cores: PyTorch's
    monkeypatch.setattr(worker, "physical_cores", lambda cores: (tuple(cores),))
    assert worker._threads(request_for(GPU)) == 1  # hyperthreads of one core
    monkeypatch.setattr(torch, "get_num_threads", lambda: 1)
    assert worker._threads(request_for(TWO_RANKS, world=2), 1) == 1  # OMP_NUM_THREADS=1


def test_each_rank_has_a_gate_for_its_own_cores_and_the_cpu_keeps_all() -> None:
    lane_of_ranks = Lane(device="cuda:0", devices=("cuda:0", "cuda:1"), rank_cores=((1, 2), (3, 4)))
    assert [worker._gate(request_for(lane_of_ranks, world=2), rank).cores for rank in (0, 1)] == [(1, 2), (3, 4)]
    on_cpu = worker._gate(request_for(TWO_RANKS, world=2), 1)
    assert (on_cpu.cores, on_cpu.undisturbed_s) == (None, 0.001)
