"""Measure the memory in use after each of many steps."""

from __future__ import annotations

import ctypes
import gc
from array import array
from collections.abc import Callable
from typing import Any

import psutil
import torch

from torchzoo.devices import device_of
from torchzoo.measure.clock import Clock
from torchzoo.measure.latency import quiet_python
from torchzoo.measure.passes import Fields, PassContext
from torchzoo.record import Growth


def measure(context: PassContext) -> Fields:
    """Measure the growth of memory over many steps."""
    step, device = context.variant.step, context.ranks.own.device
    return {"growth": measure_growth(step, context.clock, device, step_s=context.step_s)}


def measure_growth(
    step: Callable[[], Any],
    clock: Clock,
    device: torch.device,
    *,
    step_s: float,
    steps: int = 30,
    min_steps: int = 8,
    budget_s: float = 10.0,
) -> Growth:
    """Run steps and read the memory in use after each. `step_s` is their usual time.

    There are as many steps as `budget_s` allows, from `min_steps` to `steps`. Before each reading the device is
    synchronised and garbage is collected. Objects that were alive before the pass are neither collected nor counted
    again. The readings are kept in arrays that exist before, so that they do not add to the figures.
    """
    count = max(min_steps, min(steps, int(budget_s / step_s)))
    device_bytes, host_bytes, heap_bytes, objects = (array("q", bytes(8 * count)) for _ in range(4))
    process, heap = psutil.Process(), _heap_reader()
    own = device_of(device)
    is_counted = own.allocator_bytes("memory_allocated") is not None
    with quiet_python():
        for index in range(count):
            step()
            clock.synchronize()
            gc.collect()
            if is_counted:
                device_bytes[index] = own.allocator_bytes("memory_allocated") or 0
            if heap is not None:
                heap_bytes[index] = heap()
            host_bytes[index] = process.memory_full_info().uss
            objects[index] = len(gc.get_objects())
    return Growth(
        device_bytes=tuple(device_bytes) if is_counted else None,
        host_bytes=tuple(host_bytes),
        heap_bytes=None if heap is None else tuple(heap_bytes),
        python_objects=tuple(objects),
    )


class _MallocInfo(ctypes.Structure):
    """`struct mallinfo2` (mallinfo(3))."""

    _fields_ = tuple(
        (name, ctypes.c_size_t)
        for names in ("arena ordblks smblks hblks hblkhd", "usmblks fsmblks uordblks fordblks keepcost")
        for name in names.split()
    )


def _heap_reader() -> Callable[[], int] | None:
    """Return a function that reads how many bytes of `malloc` are in use, over all arenas and mappings.

    None without glibc 2.33, or where tensors get their memory elsewhere (from a preloaded jemalloc, for example).
    """
    try:
        mallinfo2 = ctypes.CDLL(None).mallinfo2
    except (AttributeError, OSError, TypeError):
        return None
    mallinfo2.restype = _MallocInfo

    def heap_bytes() -> int:
        info = mallinfo2()
        return int(info.uordblks) + int(info.hblkhd)

    before = heap_bytes()
    probe = torch.empty(2**20, dtype=torch.uint8)
    return heap_bytes if heap_bytes() - before >= probe.nbytes else None
