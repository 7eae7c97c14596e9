"""What a worker sets before its case is measured."""

from __future__ import annotations

import pytest

from examples import CASE, SPEC
from torchzoo.run import worker
from torchzoo.run.lanes import Lane
from torchzoo.settings import Settings


def test_inductors_own_variable_decides_how_many_processes_compile(monkeypatch: pytest.MonkeyPatch) -> None:
    counts: list[int] = []
    monkeypatch.setattr("torchzoo.measure.compilation.set_compile_processes", counts.append)
    request = worker.Request(
        case=CASE,
        spec=SPEC,
        settings=Settings(compile_threads=4),
        lane=Lane(device="cpu"),
        cores=(0,),
        undisturbed_loop_s=None,
        log="",
        scratch="",
    )
    monkeypatch.delenv("TORCHINDUCTOR_COMPILE_THREADS", raising=False)
    worker._limit_compile_processes(request)
    monkeypatch.setenv("TORCHINDUCTOR_COMPILE_THREADS", "1")
    worker._limit_compile_processes(request)
    assert counts == [4]
