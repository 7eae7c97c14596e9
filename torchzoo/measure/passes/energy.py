"""Measure the energy of back-to-back steps by the device's own energy counter."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from torchzoo.devices import device_of
from torchzoo.measure.clock import Clock
from torchzoo.measure.latency import steps_in
from torchzoo.measure.passes import Fields, PassContext
from torchzoo.record import Energy, EnergyWindow

WINDOWS = 6  # what a 95% interval of the median needs
WINDOW_S = 0.5
BUDGET_S = 6.0  # for all windows together; there is at least one, however long it takes
TURN_S = 0.02  # of steps between two readings of the counter
TICK_S = 0.1  # the longest time between two changes of a working counter
STANDSTILL_S = 1.0  # a counter that has not changed for this long under load does not work


def measure(context: PassContext) -> Fields:
    """Measure the energy of steps on the devices of all ranks."""
    devices = context.ranks.devices()
    return {"energy": measure_energy(context.variant.step, context.clock, devices, step_s=context.step_s)}


def measure_energy(
    step: Callable[[], Any],
    clock: Clock,
    devices: Sequence[torch.device],
    *,
    step_s: float,
    counter_mj: Callable[[], int] | None = None,
) -> Energy | None:
    """Measure the energy of whole devices in windows of steps, with their idle draw and the use of other processes.

    NVML's counter (in millijoules; Volta and later) changes every 20 to 100 ms. So a window begins and ends when a
    change was seen. The device is synchronised after every 20 ms of steps (or one step), and then the counter is read.
    A window's border is late by up to that time, which is 4% of half a second. Steps longer than the counter's interval
    are not aligned to it: there a border is early by up to an interval. Both errors show as spread between the windows,
    and cancel over the whole, since each window begins where the last one ended.

    Args:
        step: the step to measure.
        clock: of the devices.
        devices: the devices whose counters are read and added up.
        step_s: the usual time of a step.
        counter_mj: reads the sum of the counters; by default NVML's.

    Returns:
        None where there is no such counter (no NVML, a device before Volta, a MIG slice), or where it stands still.
    """
    read_mj = counter_mj or _sum_of([device_of(device).energy_counter() for device in devices])
    if read_mj is None:
        return None
    run = _Run(step, clock, read_mj, steps_per_turn=steps_in(TURN_S, step_s))
    clock.synchronize()
    before = run.now() if step_s >= TICK_S else run.until_tick(after_s=0.0)
    windows: list[EnergyWindow] = []
    spent_s = 0.0
    while before is not None and len(windows) < WINDOWS and (not windows or spent_s + step_s <= BUDGET_S):
        after = run.until_tick(after_s=WINDOW_S)
        if after is None:
            return None
        elapsed_s = (after.time_ns - before.time_ns) / 1e9
        windows.append(EnergyWindow(after.steps - before.steps, elapsed_s, (after.energy_mj - before.energy_mj) / 1e3))
        spent_s += elapsed_s
        before = after
    return Energy(windows=tuple(windows)) if windows else None


def _sum_of(counters: Sequence[Callable[[], int] | None]) -> Callable[[], int] | None:
    known = [counter for counter in counters if counter is not None]
    return (lambda: sum(read() for read in known)) if len(known) == len(counters) else None


@dataclass(frozen=True)
class _Reading:
    steps: int
    time_ns: int
    energy_mj: int


class _Run:
    """Take steps in short turns, and read the counter after each turn."""

    def __init__(
        self, step: Callable[[], Any], clock: Clock, read_mj: Callable[[], int], *, steps_per_turn: int
    ) -> None:
        self._step = step
        self._clock = clock
        self._read_mj = read_mj
        self._steps_per_turn = steps_per_turn
        self._steps = 0

    def now(self) -> _Reading:
        return _Reading(self._steps, self._clock.now_ns(), self._read_mj())

    def until_tick(self, *, after_s: float) -> _Reading | None:
        """Step for `after_s`, and on to the end of the turn in which the counter changes; None if it has stopped."""
        began_ns = moved_ns = self._clock.now_ns()
        energy_mj = self._read_mj()
        while True:
            for _ in range(self._steps_per_turn):
                self._step()
            self._clock.synchronize()
            self._steps += self._steps_per_turn
            reading = self.now()
            if reading.energy_mj != energy_mj:
                if reading.time_ns - began_ns >= after_s * 1e9:
                    return reading
                energy_mj, moved_ns = reading.energy_mj, reading.time_ns
            elif reading.time_ns - moved_ns >= STANDSTILL_S * 1e9:
                return None
