"""A candidate in a process of its own: no eager step comes before."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

import msgspec
import pytest
import torch
from measuring import SETTINGS

from torchzoo.backends import dynamo
from torchzoo.case import Backend, Case, CompileScope, Mode
from torchzoo.measure import measure_case
from torchzoo.measure.warmup import WarmUp
from torchzoo.settings import Settings
from torchzoo.zoo.catalog import find_models
from torchzoo.zoo.spec import ModelSpec
from user_models import TINY, make_folder

CASE = Case(model="tiny", mode=Mode.TRAIN, device="cpu", backend=Backend("aot_eager"), batch_size=4)


def test_time_and_peak_of_the_first_step_are_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(measure_case, "watch_device_peak", lambda _: lambda: 7)
    slow_at_first = """
    def forward(self):
        if not hasattr(self, "has_slept"):
            self.has_slept = __import__("time").sleep(0.3)
        return super().forward()
"""
    of = request(tmp_path, TINY + slow_at_first)
    found = measure_case.measure_alone(of.case, of.spec, "cpu", of.settings)
    assert found.first_step_peak_bytes == 7
    assert found.first_step_s > 0.3


class Request(NamedTuple):
    case: Case
    spec: ModelSpec
    settings: Settings


def request(folder: Path, code: str) -> Request:
    make_folder(folder / "zoo", "tiny", code)
    return Request(CASE, find_models([folder / "zoo"]).spec("tiny"), SETTINGS)


#: A network with three blocks of one class.
OF_BLOCKS = (
    TINY.replace("nn.Sequential(nn.Conv2d(3, 2, 3), nn.ReLU(), nn.Flatten(), nn.Linear(8, 2))", "Network()")
    + """

class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(48, 48)

    def forward(self, x):
        return self.linear(x).relu()


class Network(nn.Module):
    def __init__(self):
        super().__init__()
        self.blocks = nn.ModuleList(Block() for _ in range(3))
        self.head = nn.Linear(48, 2)

    def forward(self, x):
        x = x.flatten(1)
        for block in self.blocks:
            x = block(x)
        return self.head(x)
"""
)


def test_what_it_compiles_is_what_the_case_names(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    compiled: list[str] = []
    monkeypatch.setattr(dynamo, "_compiled", lambda function, _: compiled.append(function.__self__) or function)
    monkeypatch.setattr(measure_case, "count_compiled", lambda *_: None)
    of = request(tmp_path, OF_BLOCKS)
    measure_case.measure_alone(of.case, of.spec, "cpu", of.settings)
    case = msgspec.structs.replace(of.case, compile_scope=CompileScope.BLOCK)
    measure_case.measure_alone(case, of.spec, "cpu", of.settings)
    assert [type(one).__name__ for one in compiled] == ["Network", "Block", "Block", "Block"]


def test_what_the_models_libraries_change_is_put_back(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    threads: list[int] = []
    warm = WarmUp(first_step_s=1.0, first_step_cpu_s=1.0, steps_s=(1.0,), result_is_finite=True)
    monkeypatch.setattr(measure_case, "warm_up", lambda *_: threads.append(torch.get_num_threads()) or warm)
    monkeypatch.setattr(measure_case, "count_compiled", lambda *_: None)
    before = torch.get_num_threads()
    of = request(tmp_path, TINY + f"\n\ntorch.set_num_threads({before + 1})\n")
    measure_case.measure_alone(of.case, of.spec, "cpu", of.settings)
    assert threads == [before]
