"""Measure the peaks of a device, and of the links between devices.

The peaks of a device are the best rates of large matrix products, and of a copy larger than its caches. The peak of the
links is the bus bandwidth of large collectives, as nccl-tests defines it.
"""

from __future__ import annotations

import datetime as dt
import gc
from collections.abc import Callable
from statistics import median
from typing import Any

import torch
from torch import Tensor

from torchzoo.devices import device_of
from torchzoo.measure.clock import Clock, DeviceClock
from torchzoo.measure.process_group import Participant
from torchzoo.record import MeasuredPeaks
from torchzoo.stats import bus_factor

_DTYPES = {
    "fp64": torch.float64,
    "fp32": torch.float32,
    "tf32": torch.float32,
    "fp16": torch.float16,
    "bf16": torch.bfloat16,
    "fp8": torch.float8_e4m3fn,
}
_SIZES = (512, 1024, 2048, 4096, 8192, 16384)

#: Bytes of a message of a collective, by type of device. On the CPU, gloo copies through sockets.
_MESSAGES = {"cpu": (2**22, 2**24)}
_DEFAULT_MESSAGES = (2**26, 2**28, 2**30)
_CALLS, _RUNS = 5, 5


def measure_peaks(device: torch.device, *, slow_s: float = 0.2) -> MeasuredPeaks:
    """Measure the best rate of matrix products (n, n) x (n, n) over several sizes, by arithmetic, and of a copy.

    Sizes grow until a product takes longer than `slow_s`. A rate is the median of several runs of at least 10 ms. A
    copy counts the bytes that it reads and the bytes that it writes. Call this function in a process of its own: it
    changes `float32_matmul_precision`.
    """
    clock = DeviceClock(device)
    tflop_per_s = {}
    for arithmetic in _arithmetics(device):
        rate = _product_rate(arithmetic, device, clock, slow_s)
        if rate is not None:
            tflop_per_s[arithmetic] = round(rate / 1e12, 4)
    return MeasuredPeaks(
        tflop_per_s=tflop_per_s,
        gb_per_s=round(_copy_rate(device, clock) / 1e9, 2),
        torch=str(torch.__version__),
        date=dt.datetime.now(dt.UTC).date().isoformat(),
    )


def _arithmetics(device: torch.device) -> list[str]:
    own = device_of(device)
    return [name for name in _DTYPES if name not in ("tf32", "bf16", "fp8") or own.computes_in(name)]


def _product_rate(arithmetic: str, device: torch.device, clock: Clock, slow_s: float) -> float | None:
    """Return operations per second; None if the device does not compute in that dtype."""
    torch.set_float32_matmul_precision("high" if arithmetic == "tf32" else "highest")
    best = 0.0
    for size in _SIZES:
        try:
            a, b = (torch.randn(size, size, device=device).to(_DTYPES[arithmetic]) for _ in range(2))
            seconds = median_s(_float8_product(a, b) if arithmetic == "fp8" else _product(a, b), clock)
        except (RuntimeError, TypeError):  # no such dtype or product on this device, or no memory for the next size
            break
        best = max(best, 2 * size**3 / seconds)
        if 8 * seconds > slow_s:
            break
    gc.collect()
    return best or None


def _product(a: Tensor, b: Tensor) -> Callable[[], Any]:
    out = torch.empty_like(a)
    return lambda: torch.mm(a, b, out=out)


def _float8_product(a: Tensor, b: Tensor) -> Callable[[], Any]:
    """Multiply as the precision `fp8` does in inference: one scale for each operand, the result in bf16."""
    one = torch.ones((), device=a.device)
    out = torch.empty_like(a, dtype=torch.bfloat16)
    return lambda: torch._scaled_mm(a, b.t(), one, one, out_dtype=torch.bfloat16, use_fast_accum=True, out=out)


def _copy_rate(device: torch.device, clock: Clock) -> float:
    """Return the bytes read and written together, per second."""
    count = 2**28 if device.type == "cpu" else 2**30
    source = torch.ones(count, dtype=torch.uint8, device=device)
    target = torch.zeros_like(source)
    return 2 * count / median_s(lambda: target.copy_(source), clock)


def median_s(work: Callable[[], Any], clock: Clock, *, runs: int = 5, run_s: float = 0.01) -> float:
    """Return the seconds of `work`: the median over runs of at least `run_s`, after two calls to warm up."""
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


def bus_rates_gb_per_s(own: Participant) -> dict[str, float]:
    """Return the best bus bandwidth over several sizes, by collective. All ranks call it at the same time.

    The bandwidth at a size is the median of several runs of consecutive calls, after a run that does not count. The
    number of calls is fixed, since all ranks must make as many.
    """
    rates: dict[str, float] = {}
    clock = DeviceClock(own.device)
    for size in _MESSAGES.get(own.device.type, _DEFAULT_MESSAGES):
        for name, call in _collectives(own, size).items():
            times_s = [_timed_s(call, clock, _CALLS) for _ in range(1 + _RUNS)]
            moved = bus_factor(name, own.world) * size
            rates[name] = max(rates.get(name, 0.0), moved / median(times_s[1:]) / 1e9)
    return {name: round(rate, 2) for name, rate in rates.items()}


def _collectives(own: Participant, size: int) -> dict[str, Callable[[], Any]]:
    """Return the collectives by name. `size` is that of an all-gather's result and a reduce-scatter's operand."""
    from torch import distributed

    part = torch.ones(size // 4 // own.world, device=own.device)
    whole = torch.ones(part.numel() * own.world, device=own.device)
    return {
        "all_reduce": lambda: distributed.all_reduce(whole),
        "all_gather": lambda: distributed.all_gather_into_tensor(whole, part),
        "reduce_scatter": lambda: distributed.reduce_scatter_tensor(part, whole),
    }
