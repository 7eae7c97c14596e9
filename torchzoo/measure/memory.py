"""Measure the memory of a few steady steps in a pass: the allocator's peaks, NVML's figure, the host's RSS and USS."""

from __future__ import annotations

import contextlib
import gc
import os
import resource
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psutil
import torch

from torchzoo.devices.nvml import nvml_device
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
    peaks_are_of_pass = _reset_device_peaks(device)
    is_of_pass = _reset_host_peak()
    for _ in range(steps):
        step()
    clock.synchronize()
    return Memory(
        device_peak_allocated_bytes=allocator_bytes("max_memory_allocated", device) if peaks_are_of_pass else None,
        device_peak_reserved_bytes=allocator_bytes("max_memory_reserved", device) if peaks_are_of_pass else None,
        device_process_bytes=_device_process_bytes(device),
        host_peak_rss_bytes=_host_peak_bytes(),
        host_peak_is_of_pass=is_of_pass,
        host_uss_bytes=psutil.Process().memory_full_info().uss,
    )


def watch_device_peak(device: torch.device) -> Callable[[], int | None]:
    """Set the allocator's high-water mark to what is allocated now. Return a function that reads the mark, or None."""
    if not _reset_device_peaks(device):
        return lambda: None
    return lambda: allocator_bytes("max_memory_allocated", device)


def allocator_bytes(figure: str, device: torch.device) -> int | None:
    """Return a figure of the device's allocator, such as `memory_allocated`; None on the CPU or if nothing is counted.

    Where nothing is counted, PyTorch raises or returns 0, which no counting allocator returns: the model is on its
    device.
    """
    if device.type == "cpu":
        return None
    try:
        return int(getattr(torch.accelerator, figure)(device)) or None
    except RuntimeError:
        return None


def _reset_device_peaks(device: torch.device) -> bool:
    """Set the allocator's high-water marks to what is held now. Return False where it keeps none."""
    if device.type == "cpu":
        return False
    try:
        torch.accelerator.reset_peak_memory_stats(device)
    except RuntimeError:
        return False
    return True


def free_memory(device: torch.device) -> None:
    """Collect garbage, and give cached blocks back to the device."""
    gc.collect()
    if device.type != "cpu":
        with contextlib.suppress(RuntimeError):  # not each allocator has a cache
            torch.accelerator.empty_cache()


def held_by_others(device: torch.device) -> int | None:
    """Return the bytes of device memory that other processes hold, with the context of this one (some hundred MB).

    0 on the CPU; None where no figure is available.
    """
    if device.type == "cpu":
        return 0
    reserved = allocator_bytes("memory_reserved", device)
    if reserved is None:
        return None
    free, total = torch.accelerator.get_memory_info(device)
    return total - free - reserved


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


def _device_process_bytes(device: torch.device) -> int | None:
    """Return the device memory of this process with its context; None where NVML can't tell (as in a PID namespace)."""
    import pynvml

    handle = nvml_device(device)
    if handle is None:
        return None
    try:
        processes = pynvml.nvmlDeviceGetComputeRunningProcesses(handle)
    except pynvml.NVMLError:
        return None
    used = [process.usedGpuMemory for process in processes if process.pid == os.getpid()]
    return used[0] if used else None
