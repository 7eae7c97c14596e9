"""What NVML tells of a case's devices: why they were slow, and who else used them."""

from __future__ import annotations

import os
import subprocess
import sys
from types import SimpleNamespace

import psutil
import pytest

from examples import measured
from torchzoo.analysis import throttling
from torchzoo.devices.cuda import _throttled_s
from torchzoo.devices.foreign import foreign_processes
from torchzoo.record import Block, DeviceState, RankResult
from torchzoo.report.remarks import remarks


def test_reasons_for_clocks_in_words() -> None:
    assert throttling.slowdowns([0x1 | 0x2 | 0x10 | 0x100, None]) == []
    assert throttling.slowdowns([0x20, None, 0x88]) == [
        "hardware slowdown",
        "software thermal slowdown",
        "hardware power brake",
    ]


def test_the_bits_are_those_of_nvml() -> None:
    import pynvml

    assert throttling.slowdowns([pynvml.nvmlClocksEventReasonSwPowerCap]) == ["software power cap"]
    assert throttling.slowdowns([pynvml.nvmlClocksEventReasonHwThermalSlowdown]) == ["hardware thermal slowdown"]
    assert len(throttling.slowdowns([pynvml.nvmlClocksEventReasonAll])) == 5


def test_a_device_that_throttled_or_was_shared_is_remarked() -> None:
    before, after = DeviceState(throttle_reasons=0, foreign_processes=2), DeviceState(throttle_reasons=0x21)
    said = remarks(measured(device_state_before=before, device_state_after=after))
    assert said == [
        "the device throttled (software thermal slowdown) when it was measured",
        "2 other processes had the device open when it was measured",
    ]
    quiet = DeviceState(throttle_reasons=0x3, foreign_processes=0)
    assert remarks(measured(device_state_before=quiet, device_state_after=quiet)) == []


def test_a_device_of_any_rank_that_throttled_or_was_shared_is_remarked() -> None:
    quiet, hot = DeviceState(throttle_reasons=0, foreign_processes=0), DeviceState(throttle_reasons=0x40)
    shared = DeviceState(foreign_processes=1)
    ranks = (
        RankResult(step_s={}, memory={}, device_state_before=quiet, device_state_after=quiet),
        RankResult(step_s={}, memory={}, device_state_before=shared, device_state_after=hot),
    )
    said = remarks(measured(ranks=ranks, device_state_before=quiet, device_state_after=quiet))
    assert said == [
        "the device throttled (hardware thermal slowdown) when it was measured",
        "1 other process had the device open when it was measured",
    ]


def test_throttling_between_the_readings_is_known_from_nvmls_counters() -> None:
    power, heat = "software power cap", "hardware thermal slowdown"
    before = DeviceState(throttle_reasons=0, throttled_s={power: 100.0, heat: 5.0})
    blocks = tuple(Block("eager", (0.1,) * 5) for _ in range(4))

    def said(power_s: float, heat_s: float, mask: int = 0) -> list[str]:
        after = DeviceState(throttle_reasons=mask, throttled_s={power: 100.0 + power_s, heat: 5.0 + heat_s})
        return remarks(measured(blocks=blocks, device_state_before=before, device_state_after=after))

    assert said(0.0, 0.019) == []
    assert said(0.5, 0.0) == [
        "the device was at its power limit for 25% of the time: "
        "such a step's time depends on the values it computes with"
    ]
    assert said(0.0, 9.0, mask=0x4) == [
        "the device was at its power limit: such a step's time depends on the values it computes with",
        "the device throttled (hardware thermal slowdown, 100% of the time) when it was measured",
    ]


def test_counters_that_a_device_lacks_are_left_out() -> None:
    def value(field: int, nanoseconds: int, returned: int = 0) -> SimpleNamespace:
        return SimpleNamespace(fieldId=field, nvmlReturn=returned, value=SimpleNamespace(ullVal=nanoseconds))

    found = _throttled_s([value(74, 1_500_000_000), value(269, 0, returned=3), value(271, 0)])
    assert found == {"software power cap": 1.5, "hardware power brake": 0.0}


def test_siblings_and_their_children_are_of_the_run_and_others_are_not() -> None:
    child = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    try:
        own, stranger = os.getpid(), os.getppid()
        # this process stands for the server, and the child for another worker; the parent is a stranger
        assert foreign_processes([own, child.pid], own=own, ancestor=own) == 0
        assert foreign_processes([own, child.pid, stranger], own=own, ancestor=own) == 1
        assert foreign_processes([child.pid, stranger], own=own, ancestor=own) is None
        assert foreign_processes([], own=own, ancestor=own) is None
    finally:
        child.communicate(b"\n")


def test_a_process_that_has_ended_is_not_counted_as_foreign() -> None:
    """NVML lists it for some seconds more. It may still wait for its parent, as a zombie."""
    own, stranger = os.getpid(), os.getppid()
    child = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    assert foreign_processes([own, child.pid], own=own, ancestor=stranger) == 0
    assert foreign_processes([own, child.pid], own=own, ancestor=child.pid) == 1  # it descends from this process alone
    child.kill()
    os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)
    assert foreign_processes([own, child.pid], own=own, ancestor=child.pid) == 0  # a zombie
    child.communicate()
    assert foreign_processes([own, child.pid], own=own, ancestor=child.pid) == 0


def test_a_process_that_another_user_hides_is_foreign(monkeypatch: pytest.MonkeyPatch) -> None:
    """A /proc that is mounted with hidepid does not show it, but its number is taken."""
    own, stranger = os.getpid(), os.getppid()

    def hidden(pid: int) -> None:
        raise psutil.NoSuchProcess(pid)

    monkeypatch.setattr(psutil, "Process", hidden)
    assert foreign_processes([own, stranger], own=own, ancestor=own) == 1
