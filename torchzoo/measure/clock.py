"""The clocks of host and device, which tell when a step is over and how long the device took, and the CPU time."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable
from typing import Any, Protocol

import psutil
import torch

from torchzoo.devices import device_of

#: Shorter waits have no pause.
LEAST_WAIT_S = 1e-3


class Clock(Protocol):
    """The clock that measuring reads. Tests use a fake clock."""

    @property
    def is_asynchronous(self) -> bool:
        """Whether a step may return before the device has done its work."""
        ...

    def now_ns(self) -> int: ...

    def synchronize(self) -> None:
        """Wait until the device has done all work that was launched."""
        ...

    def mark(self) -> Any:
        """Return a new event after the work that was launched so far; None without such events."""
        ...

    def device_time_s(self, began: Any, ended: Any) -> float | None:
        """Return the device time between two events that have passed; None without events."""
        ...


class DeviceClock:
    """`time.perf_counter_ns`, and the synchronisation of the device. On the CPU there is nothing to wait for."""

    def __init__(self, device: torch.device) -> None:
        self.now_ns = time.perf_counter_ns
        self._device = device_of(device)

    @property
    def is_asynchronous(self) -> bool:
        """Whether a step may return before the device has done its work."""
        return self._device.is_asynchronous

    def synchronize(self) -> None:
        self._device.synchronize()

    def mark(self) -> Any:
        event = self._device.event()
        if event is not None:
            event.record()
        return event

    def device_time_s(self, began: Any, ended: Any) -> float | None:
        return None if began is None else began.elapsed_time(ended) / 1e3


class PatientClock(DeviceClock):
    """A clock for steps that are not timed, which leaves its core to other processes while it waits for the device.

    `DeviceClock` polls the device without a pause, to see the end of a step at once. While several workers share the
    device, polling takes much of the CPU time that their compilers need. This clock sees the end of a step late, by at
    most a twentieth of the step's time.
    """

    def synchronize(self) -> None:
        end, began = self.mark(), time.perf_counter()
        while end is not None and not end.query():
            waited_s = time.perf_counter() - began
            if waited_s > LEAST_WAIT_S:
                time.sleep(min(0.01, waited_s / 20))
        super().synchronize()


def issuing_clock(clock: Clock) -> Callable[[], int]:
    """Return the CPU clock of the threads that issue a step, in nanoseconds.

    On an accelerator these are Python's and autograd's, so that of the process is read. On the CPU Python's thread does
    both, and the threads that compute with it spin after their work, so only its own is read.
    """
    return time.process_time_ns if clock.is_asynchronous else time.thread_time_ns


def cpu_time_s() -> float:
    """Return the CPU time of this process and of its children, both alive (pools of compilers) and ended."""
    own = psutil.Process()
    total = 0.0
    for process in [own, *own.children(recursive=True)]:
        with contextlib.suppress(psutil.NoSuchProcess):
            times = process.cpu_times()
            total += times.user + times.system + times.children_user + times.children_system
    return total
