"""The wall clock and the device's: when a step is over, and how long the device took."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any, Protocol

import torch


class Clock(Protocol):
    """What `measure` needs of time; tests fake it."""

    def now_ns(self) -> int: ...

    def synchronize(self) -> None:
        """Return once all work given to the device is done."""
        ...


class DeviceClock:
    """`time.perf_counter_ns` and the device's own synchronisation (nothing to wait for on the CPU)."""

    def __init__(self, device: torch.device) -> None:
        self.now_ns = time.perf_counter_ns
        self._module: Any = None if device.type == "cpu" else torch.get_device_module(device)
        self._device = device

    @property
    def is_asynchronous(self) -> bool:
        return self._module is not None

    def synchronize(self) -> None:
        if self._module is not None:
            self._module.synchronize(self._device)

    def device_times_s(self, step: Callable[[], Any], steps: int) -> tuple[float, ...]:
        """Time of each of `steps` steps between two device events, the device idle before each; empty on the CPU."""
        if self._module is None:
            return ()
        times = []
        for _ in range(steps):
            start, end = (self._module.Event(enable_timing=True) for _ in range(2))
            self.synchronize()
            start.record()
            step()
            end.record()
            self.synchronize()
            times.append(start.elapsed_time(end) / 1e3)
        return tuple(times)
