"""What a device's matrix products and copies reach: large square products by precision, a copy beyond its caches."""

from __future__ import annotations

import datetime as dt
import gc
from collections.abc import Callable
from statistics import median
from typing import Any

import torch

from torchzoo.measure.clock import Clock, DeviceClock
from torchzoo.record import MeasuredPeaks

_DTYPES = {
    "fp64": torch.float64,
    "fp32": torch.float32,
    "tf32": torch.float32,
    "fp16": torch.float16,
    "bf16": torch.bfloat16,
}
_SIZES = (512, 1024, 2048, 4096, 8192, 16384)


def measure_ceilings(device: torch.device, *, slow_s: float = 0.2) -> MeasuredPeaks:
    """The best rate over sizes of matrix products (n, n) x (n, n), by path, and the rate of a copy.

    Sizes grow until a product takes longer than `slow_s`. A rate is the median of several runs of at least 10 ms; a
    copy counts what it reads and what it writes. It changes `float32_matmul_precision`: for a process of its own.
    """
    clock = DeviceClock(device)
    tflop_per_s = {}
    for path in _paths(device):
        rate = _product_rate(path, device, clock, slow_s)
        if rate is not None:
            tflop_per_s[path] = round(rate / 1e12, 4)
    return MeasuredPeaks(
        tflop_per_s=tflop_per_s,
        gb_per_s=round(_copy_rate(device, clock) / 1e9, 2),
        torch=str(torch.__version__),
        date=dt.datetime.now(dt.UTC).date().isoformat(),
    )


def _paths(device: torch.device) -> list[str]:
    has_tf32 = device.type == "cuda" and not torch.version.hip and torch.cuda.get_device_capability(device) >= (8, 0)
    return [path for path in _DTYPES if path != "tf32" or has_tf32]


def _product_rate(path: str, device: torch.device, clock: Clock, slow_s: float) -> float | None:
    """Operations per second; None where the device does not compute in that dtype, bfloat16 by emulation included."""
    if path == "bf16" and device.type == "cuda" and not torch.cuda.is_bf16_supported(including_emulation=False):
        return None
    torch.set_float32_matmul_precision("high" if path == "tf32" else "highest")
    best = 0.0
    for size in _SIZES:
        try:
            a, b = (torch.randn(size, size, device=device).to(_DTYPES[path]) for _ in range(2))
            out = torch.empty_like(a)
            seconds = median_s(lambda a=a, b=b, out=out: torch.mm(a, b, out=out), clock)  # type: ignore[misc]
        except (RuntimeError, TypeError):  # no such dtype or product on this device, or no memory for the next size
            break
        best = max(best, 2 * size**3 / seconds)
        if 8 * seconds > slow_s:
            break
    gc.collect()
    return best or None


def _copy_rate(device: torch.device, clock: Clock) -> float:
    """Bytes per second, read and written together."""
    count = 2**28 if device.type == "cpu" else 2**30
    source = torch.ones(count, dtype=torch.uint8, device=device)
    target = torch.zeros_like(source)
    return 2 * count / median_s(lambda: target.copy_(source), clock)


def median_s(work: Callable[[], Any], clock: Clock, *, runs: int = 5, run_s: float = 0.01) -> float:
    """Seconds of one `work`: the median over runs, each at least `run_s` long, after two that warm up."""
    work()
    seconds = _timed_s(work, clock, 1)
    repetitions = max(1, round(run_s / max(seconds, 1e-9)))
    return median(_timed_s(work, clock, repetitions) for _ in range(runs))


def _timed_s(work: Callable[[], Any], clock: Clock, repetitions: int) -> float:
    clock.synchronize()
    began = clock.now_ns()
    for _ in range(repetitions):
        work()
    clock.synchronize()
    return (clock.now_ns() - began) / 1e9 / repetitions
