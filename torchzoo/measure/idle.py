"""Waiting for the device to be idle: kernels that a stopped process has queued on it go on running."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from torchzoo.measure.clock import Clock
from torchzoo.measure.latency import timed_step_s

#: A probe, which is one small kernel, takes some 20 µs. While another process uses the device, it waits for its turn: a
#: millisecond or more. So a longer probe is a wait.
WAIT_S = 1e-3
#: The device is looked at for this long at a time.
LOOK_S = 0.05
#: It is idle if at most this share of a look went into waits.
IDLE_SHARE = 0.1


def device_probe(device: torch.device) -> Callable[[], Any]:
    """Launches one small kernel on the device."""
    value = torch.zeros((), device=device)
    return lambda: value.add_(1)


def wait_until_idle(probe: Callable[[], Any], clock: Clock, *, limit_s: float = 60.0) -> tuple[float, bool]:
    """Wait until the device has done the work of other processes. Returns how long that took, and whether it is idle.

    SIGSTOP stops a process but not the kernels that it has already launched. With slow steps these can run for seconds.
    Processes take turns on a device: while another one's kernels run, even small kernels of our own take long. The
    device is idle when at most a tenth of a look (50 ms) went into such waits. After `limit_s` it is called busy.
    """
    for _ in range(3):  # the first launch loads the kernel
        timed_step_s(probe, clock)
    began = clock.now_ns()
    while True:
        look_began, waited_s = clock.now_ns(), 0.0
        while (looked_s := (clock.now_ns() - look_began) / 1e9) < LOOK_S:
            took_s = timed_step_s(probe, clock)
            waited_s += took_s if took_s > WAIT_S else 0.0
        elapsed_s = (clock.now_ns() - began) / 1e9
        if waited_s <= IDLE_SHARE * looked_s:
            return max(0.0, elapsed_s - looked_s), True
        if elapsed_s >= limit_s:
            return elapsed_s, False
