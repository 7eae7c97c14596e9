"""The wall clock and the device's: when a step is over, and how long the device took."""

from __future__ import annotations

import time
from typing import Any, Protocol

import torch


class Clock(Protocol):
    """What `measure` needs of time; tests fake it."""

    def now_ns(self) -> int: ...

    def synchronize(self) -> None:
        """Return once all work given to the device is done."""
        ...

    def mark(self) -> Any:
        """An event among the work given to the device; None where there is no device but the host."""
        ...

    def device_time_s(self, began: Any, ended: Any) -> float | None:
        """Device time between two marks that it has passed; None for those of the host."""
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

    def mark(self) -> Any:
        if self._module is None:
            return None
        event = self._module.Event(enable_timing=True)
        event.record()
        return event

    def device_time_s(self, began: Any, ended: Any) -> float | None:
        return None if began is None else began.elapsed_time(ended) / 1e3
