"""Waiting for kernels that stopped processes have queued: with a fake clock, and with a real process."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time

import pytest
import torch

from torchzoo.measure.case_rank import device_probe, wait_until_idle
from torchzoo.measure.clock import DeviceClock


class BusyDevice:
    """Another process uses it until `busy_s`: every second probe then takes 2 ms. Other probes take 20 µs."""

    is_asynchronous = True

    def __init__(self, busy_s: float, jitter_every: int = 0) -> None:
        self.busy_s = busy_s
        self.jitter_every = jitter_every
        self.time_ns = 0
        self.probes = 0

    def now_ns(self) -> int:
        return self.time_ns

    def synchronize(self) -> None: ...

    def mark(self) -> None: ...

    def device_time_s(self, began: None, ended: None) -> None: ...

    def probe(self) -> None:
        self.probes += 1
        is_shared = self.time_ns < self.busy_s * 1e9 and self.probes % 2 == 0
        is_late = self.jitter_every and self.probes % self.jitter_every == 0
        self.time_ns += 2_000_000 if is_shared or is_late else 20_000


def test_an_idle_device_costs_no_waiting() -> None:
    device = BusyDevice(0.0)
    assert wait_until_idle(device.probe, device) == (0.0, True)


def test_a_busy_device_is_waited_for() -> None:
    device = BusyDevice(3.0)
    waited_s, is_idle = wait_until_idle(device.probe, device)
    assert is_idle
    assert waited_s == pytest.approx(3.0, abs=0.1)


def test_a_device_that_stays_busy_is_reported() -> None:
    device = BusyDevice(1e9)
    waited_s, is_idle = wait_until_idle(device.probe, device, limit_s=5.0)
    assert not is_idle
    assert waited_s == pytest.approx(5.0, abs=0.1)


def test_a_late_probe_now_and_then_is_the_hosts_jitter() -> None:
    device = BusyDevice(0.0, jitter_every=1500)
    assert wait_until_idle(device.probe, device) == (0.0, True)


QUEUE_SECONDS_OF_WORK = """
import torch
x = torch.randn(8192, 8192, device="cuda")
(x @ x).sum().item()
torch.cuda.synchronize()
for _ in range(200):
    y = x @ x
print("queued", flush=True)
torch.cuda.synchronize()
"""


@pytest.mark.gpu
def test_kernels_that_a_stopped_process_has_queued_are_waited_for() -> None:
    device = torch.device("cuda", 0)
    clock, probe = DeviceClock(device), device_probe(device)
    waited_before_s, was_idle = wait_until_idle(probe, clock)
    child = subprocess.Popen([sys.executable, "-c", QUEUE_SECONDS_OF_WORK], stdout=subprocess.PIPE)
    assert child.stdout is not None
    try:
        child.stdout.readline()
        os.kill(child.pid, signal.SIGSTOP)
        began = time.perf_counter()
        waited_s, is_idle = wait_until_idle(probe, clock)
        took_s = time.perf_counter() - began
    finally:
        child.kill()
        child.wait()
    print(f"idle: waited {waited_before_s:.3f} s; with a stopped process's queue: {waited_s:.3f} s of {took_s:.3f} s")
    assert was_idle
    assert is_idle
    assert waited_s > 0.5
