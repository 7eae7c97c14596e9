"""Measure the memory of a few steady steps in a pass: the allocator's peaks, NVML's figure, the host's RSS and USS."""

from __future__ import annotations

import gc
import os
import resource
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psutil
import torch

from torchzoo.devices import device_of
from torchzoo.machine import process
from torchzoo.measure.clock import DeviceClock
from torchzoo.record import Memory


def measure_memory(step: Callable[[], Any], steps: int, device: torch.device) -> Memory:
    """Run `steps` steps and read the peaks, after the freed memory of earlier work was given back by device and host.

    Garbage is collected first: compiling leaves cycles of references that may hold tensors, and Python frees them only
    after a number of new objects. During the steps Python collects as it does for users.
    """
    clock = DeviceClock(device)
    gc.collect()
    process.give_back()
    free_memory(device)
    own = device_of(device)
    peaks_are_of_pass = own.reset_peaks()
    is_of_pass = _reset_host_peak()
    for _ in range(steps):
        step()
    clock.synchronize()
    return Memory(
        device_peak_allocated_bytes=own.allocator_bytes("max_memory_allocated") if peaks_are_of_pass else None,
        device_peak_reserved_bytes=own.allocator_bytes("max_memory_reserved") if peaks_are_of_pass else None,
        device_process_bytes=own.process_bytes(),
        host_peak_rss_bytes=_host_peak_bytes(),
        host_peak_is_of_pass=is_of_pass,
        host_uss_bytes=psutil.Process().memory_full_info().uss,
    )


def watch_device_peak(device: torch.device) -> Callable[[], int | None]:
    """Set the allocator's high-water mark to what is allocated now. Return a function that reads the mark, or None."""
    own = device_of(device)
    if not own.reset_peaks():
        return lambda: None
    return lambda: own.allocator_bytes("max_memory_allocated")


def free_memory(device: torch.device) -> None:
    """Collect garbage, and give cached blocks back to the device."""
    gc.collect()
    device_of(device).empty_cache()


def _reset_host_peak() -> bool:
    """Set the kernel's high-water mark to what is resident now (proc(5), clear_refs). Return False where it can't."""
    try:
        Path("/proc/self/clear_refs").write_text("5")
    except OSError:
        return False
    return True


def _host_peak_bytes() -> int:
    try:
        status = Path("/proc/self/status").read_text()
        return next(int(line.split()[1]) * 1024 for line in status.splitlines() if line.startswith("VmHWM:"))
    except (OSError, StopIteration):
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        return peak if os.uname().sysname == "Darwin" else peak * 1024
