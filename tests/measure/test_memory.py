"""Memory that no allocator reports is unknown, from the reading to the report, and never 0."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest
import torch

from examples import CASE, measured, record, results_of, variant_result
from torchzoo.analysis.frame import figure
from torchzoo.devices import device_of
from torchzoo.measure import memory as memory_module
from torchzoo.measure.clock import DeviceClock
from torchzoo.measure.memory import free_memory, measure_memory, watch_device_peak
from torchzoo.measure.passes.leak import measure_growth
from torchzoo.record import Memory
from torchzoo.report.one_case import figure_lines
from torchzoo.run.room import Room, kind_of

NPU = torch.device("privateuseone")

FIGURES = ("max_memory_allocated", "max_memory_reserved", "memory_allocated", "memory_reserved")
OTHERS = ("reset_peak_memory_stats", "empty_cache", "get_memory_info")


def raises(*_: Any) -> Any:
    raise RuntimeError("Allocator for privateuseone is not a DeviceAllocator.")


@pytest.fixture(params=["raises", "says nothing"])
def _silent_accelerator(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """An accelerator whose allocator counts nothing: PyTorch raises, or says 0."""
    silent: Callable[..., Any] = raises if request.param == "raises" else lambda *_: 0
    for name in FIGURES:
        monkeypatch.setattr(torch.accelerator, name, silent)
    for name in OTHERS:
        monkeypatch.setattr(torch.accelerator, name, raises if request.param == "raises" else lambda *_: None)
    fake(monkeypatch)


def fake(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(memory_module, "DeviceClock", lambda _: DeviceClock(torch.device("cpu")))


@pytest.mark.usefixtures("_silent_accelerator")
def test_what_no_allocator_reports_is_not_known() -> None:
    found = measure_memory(lambda: None, 1, NPU)
    assert (found.device_peak_allocated_bytes, found.device_peak_reserved_bytes) == (None, None)
    assert found.host_peak_rss_bytes
    assert watch_device_peak(NPU)() is None
    assert device_of(NPU).held_by_others() is None
    free_memory(NPU)
    growth = measure_growth(lambda: None, DeviceClock(torch.device("cpu")), NPU, step_s=1.0, steps=2, min_steps=2)
    assert growth.device_bytes is None


def test_what_an_allocator_reports_is_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    for number, name in enumerate(FIGURES, start=1):
        monkeypatch.setattr(torch.accelerator, name, lambda *_, number=number: number)
    for name in OTHERS:
        monkeypatch.setattr(torch.accelerator, name, lambda *_: (50, 100))
    fake(monkeypatch)
    found = measure_memory(lambda: None, 1, NPU)
    assert (found.device_peak_allocated_bytes, found.device_peak_reserved_bytes) == (1, 2)
    assert watch_device_peak(NPU)() == 1
    assert device_of(NPU).allocator_bytes("memory_allocated") == 3
    assert device_of(NPU).held_by_others() == 100 - 50 - 4


def test_peaks_that_can_not_be_reset_are_not_those_of_the_pass(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in FIGURES:
        monkeypatch.setattr(torch.accelerator, name, lambda *_: 9)
    for name in OTHERS:
        monkeypatch.setattr(torch.accelerator, name, raises)
    fake(monkeypatch)
    assert measure_memory(lambda: None, 1, NPU).device_peak_allocated_bytes is None
    assert watch_device_peak(NPU)() is None


def test_reports_do_not_show_it_as_zero_or_as_the_hosts() -> None:
    (on_device,) = results_of([record(measured(), device="npu")])
    (on_host,) = results_of([record(measured(), device="cpu")])
    assert figure("peak_bytes").value(on_device) is None
    assert figure("peak_bytes").value(on_host) == 300 * 2**20
    lines = dict(figure_lines(on_device.figures, [on_device.figures.eager]))
    assert lines["device memory, peak allocated"] == ["not known"]
    assert "device memory, peak allocated" not in dict(figure_lines(on_host.figures, [on_host.figures.eager]))


def test_a_case_of_which_nothing_is_known_teaches_no_need_of_memory() -> None:
    room = Room(SimpleNamespace(), {}, jobs=2)
    case = msgspec.structs.replace(CASE, device="npu")
    unknown = measured(variants={"eager": variant_result(memory=Memory())})
    room.learn(SimpleNamespace(outcome=unknown, planned=SimpleNamespace(case=case)))
    assert (room.learned_bytes, room.learned_host_bytes) == ({}, {})
    known = measured(variants={"eager": variant_result(memory=Memory(device_peak_reserved_bytes=7, host_uss_bytes=5))})
    room.learn(SimpleNamespace(outcome=known, planned=SimpleNamespace(case=case)))
    assert (room.learned_bytes, room.learned_host_bytes) == ({kind_of(case): 7.0}, {kind_of(case): 5.0})
