"""Whether a device is idle: work that a stopped process has queued on it goes on running."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from torchzoo.measure.clock import Clock
from torchzoo.measure.latency import timed_step_s

#: One small kernel takes some 20 µs; beside another process it waits for its turn, a millisecond or more.
SLOW_S = 1e-3
LOOK_S = 0.05
BUSY_SHARE = 0.1


def device_probe(device: torch.device) -> Callable[[], Any]:
    """One small kernel on the device."""
    value = torch.zeros((), device=device)
    return lambda: value.add_(1)


def wait_until_idle(probe: Callable[[], Any], clock: Clock, *, limit_s: float = 60.0) -> tuple[float, bool]:
    """Wait for the device to be done with the work of other processes: how long that took, and whether it came to pass.

    SIGSTOP stops a process, not the kernels that it has launched already: seconds of them, for slow steps. Processes
    take turns on a device, so that as long as another one's kernels run, small ones of our own take long. The device
    counts as idle when for 50 ms at most a tenth of the time went into such waits.
    """
    for _ in range(3):  # the first launch loads the kernel
        timed_step_s(probe, clock)
    began = clock.now_ns()
    while True:
        look_began, waited_s = clock.now_ns(), 0.0
        while (looked_s := (clock.now_ns() - look_began) / 1e9) < LOOK_S:
            took_s = timed_step_s(probe, clock)
            waited_s += took_s if took_s > SLOW_S else 0.0
        elapsed_s = (clock.now_ns() - began) / 1e9
        if waited_s <= BUSY_SHARE * looked_s:
            return max(0.0, elapsed_s - looked_s), True
        if elapsed_s >= limit_s:
            return elapsed_s, False
