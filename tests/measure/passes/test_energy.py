"""Energy per step from a counter that moves in ticks, under a fake clock."""

from __future__ import annotations

import pytest
import torch
from test_breakdown import table

from examples import measured, variant_result
from torchzoo import stats
from torchzoo.measure.clock import DeviceClock
from torchzoo.measure.passes.energy import measure_energy
from torchzoo.record import Energy, EnergyWindow

CPU = torch.device("cpu")


class FakeDevice:
    """A step's device work is done when someone synchronises. The counter (mJ) shows the energy at its last tick."""

    def __init__(self, *, step_s: float, power_w: float, tick_s: float) -> None:
        self.time_s = 0.0123
        self.pending_s = 0.0
        self.steps = 0
        self._step_s, self._power_w, self._tick_s = step_s, power_w, tick_s

    def step(self) -> None:
        self.steps += 1
        self.pending_s += self._step_s

    def now_ns(self) -> int:
        return round(self.time_s * 1e9)

    def synchronize(self) -> None:
        self.time_s += self.pending_s
        self.pending_s = 0.0

    def mark(self) -> None: ...

    def device_time_s(self, began: object, ended: object) -> None: ...

    def counter_mj(self) -> int:
        assert self.pending_s == 0, "read while steps are still running"
        ticks = int(self.time_s / self._tick_s)
        return int(1e12 + 1e3 * self._power_w * ticks * self._tick_s)

    def measure(self, step_s: float) -> Energy | None:
        return measure_energy(self.step, self, [CPU], step_s=step_s, counter_mj=self.counter_mj)


@pytest.mark.parametrize("tick_s", [0.02, 0.1])
@pytest.mark.parametrize("step_s", [0.0003, 0.007, 0.05])
def test_joules_per_step_are_power_times_time_although_the_counter_is_coarse(step_s: float, tick_s: float) -> None:
    device = FakeDevice(step_s=step_s, power_w=400.0, tick_s=tick_s)
    energy = device.measure(step_s)
    assert energy is not None
    assert len(energy.windows) == 6
    assert energy.elapsed_s >= 3.0
    per_step = stats.step_energy_j(energy)
    late_s = max(0.02, step_s)  # how late a border can be
    assert per_step.value == pytest.approx(400.0 * step_s, rel=late_s / energy.elapsed_s + 0.001)
    assert per_step.low <= 400.0 * step_s <= per_step.high
    assert per_step.confidence >= 0.95


@pytest.mark.parametrize(("step_s", "windows"), [(0.4, 6), (2.5, 2), (30.0, 1)])
def test_slow_steps_take_no_more_than_they_must(step_s: float, windows: int) -> None:
    device = FakeDevice(step_s=step_s, power_w=300.0, tick_s=0.05)
    energy = device.measure(step_s)
    assert energy is not None
    assert len(energy.windows) == windows
    assert device.steps == energy.steps
    assert energy.energy_j == pytest.approx(300.0 * step_s * energy.steps, rel=0.05 / energy.elapsed_s + 0.001)


def test_a_counter_that_stands_still_is_none() -> None:
    device = FakeDevice(step_s=0.01, power_w=0.0, tick_s=0.05)
    assert device.measure(0.01) is None
    assert device.time_s < 2.0


def test_without_a_counter_there_is_no_energy_and_no_step_is_run() -> None:
    assert measure_energy(pytest.fail, DeviceClock(CPU), [CPU], step_s=0.01) is None


def test_a_case_shows_energy_per_step_and_per_sample() -> None:
    energy = Energy(windows=(EnergyWindow(10, 0.5, 200.0),) * 6)
    text = table(measured(variants={"eager": variant_result(energy=energy)}), device="cuda")
    lines = {line.split("  ")[0]: line for line in text.splitlines()}
    assert "20.000 J [20.000, 20.000]" in lines["energy of a step"]
    assert "5.00 J" in lines["energy of a sample"]  # of four
    assert "energy" not in table(measured(), device="cuda")


@pytest.mark.gpu
def test_a_gpus_counter_agrees_with_its_power_draw() -> None:
    import pynvml

    from torchzoo.devices.cuda import CudaDevice

    device = torch.device("cuda")
    matrix = torch.ones(8192, 8192, device=device)
    clock = DeviceClock(device)
    powers_w = []

    def step() -> None:
        torch.mm(matrix, matrix)
        powers_w.append(pynvml.nvmlDeviceGetPowerUsage(CudaDevice(device)._nvml()) / 1e3)

    energy = measure_energy(step, clock, [device], step_s=0.03)
    if energy is None:
        pytest.skip("this device has no energy counter")
    assert len(energy.windows) == 6
    assert energy.energy_j / energy.elapsed_s == pytest.approx(sum(powers_w) / len(powers_w), rel=0.25)
