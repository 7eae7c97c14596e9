"""What a step achieved of what the device can do, and what bounds it: arithmetic, memory, or the host that launches."""

from __future__ import annotations

import enum
from collections import defaultdict
from collections.abc import Mapping
from statistics import median

import msgspec

from torchzoo import stats
from torchzoo.analysis.peaks import Peaks, peaks_of
from torchzoo.case import Case
from torchzoo.record import EAGER_VARIANT, Flops, Measured, VariantResult
from torchzoo.stats import Estimate

#: At this share of a step without work for the device, launching bounds it.
IDLE_SHARE = 0.5
#: At this share of a step's time until the host has launched it, the device had to wait.
HOST_SHARE = 0.9
#: Of a ceiling: at this use it explains the time of a device that is known to be busy ...
BUSY_USE = 0.25
#: ... and at this one whatever else is known or not.
CERTAIN_USE = 0.5


class Bound(enum.StrEnum):
    COMPUTE = "compute"
    MEMORY = "memory"
    LAUNCH = "launch"
    UNKNOWN = "unknown"


class MixedPeak(msgspec.Struct, frozen=True, kw_only=True):
    """The rate at which a device at its peaks would do a step's operations."""

    flop_per_s: float
    paths: dict[str, float]  # share of the operations by path: {"tf32": 0.99, "fp32": 0.01}
    source: str  # "datasheet", "measured 2026-11-21 with torch 2.15.0"


class Achieved(msgspec.Struct, frozen=True, kw_only=True):
    """Of one variant. `mfu` and `peak` are None where no peak is known; `why` is what the bound was concluded from."""

    flop_per_s: Estimate
    peak: MixedPeak | None
    mfu: Estimate | None
    bound: Bound
    why: str


def known_peaks(case: Case, measured: Measured) -> Peaks:
    """The ceilings of the device that a case ran on.

    Raises:
        PeaksFileError: the file of measured ceilings can't be read.
    """
    return peaks_of(measured.device_name, threads=measured.threads if case.device == "cpu" else None)


def achieved(measured: Measured, variant: str, peaks: Peaks) -> Achieved | None:
    """What `variant` reached; None where the operations were not counted.

    Operations are eager's: a candidate does the same mathematics, so its rate is that of eager's operations in its own
    time (model FLOPs, as in MFU: Chowdhery et al., 2022, arXiv:2204.02311, appendix B).
    """
    flops = measured.flops
    if flops is None:
        return None
    latency_s = stats.latency_s(measured.blocks, variant)
    rate = _divided(flops.total, latency_s)
    peak = mixed_peak(flops, measured.precision_flags, peaks)
    bound, why = _bound(measured, variant, latency_s.value, peak, peaks)
    return Achieved(
        flop_per_s=rate,
        peak=peak,
        mfu=None if peak is None else _divided(flops.total / peak.flop_per_s, latency_s),
        bound=bound,
        why=why,
    )


def _divided(amount: float, by: Estimate) -> Estimate:
    return Estimate(
        value=amount / by.value,
        low=amount / by.high,
        high=amount / by.low,
        confidence=by.confidence,
        count=by.count,
    )


def mixed_peak(flops: Flops, flags: Mapping[str, str], peaks: Peaks) -> MixedPeak | None:
    """The peak that a step's operations add up to: their number over the time of each part at the peak of its path.

    The path of an operator is that of what it was given, whatever the case's label says (under autocast: of what
    autocast made of it): fp64, fp16, bf16, and for float32 tf32 or fp32. PyTorch allows TF32 apart for convolutions and
    recurrent layers (cuDNN: `cudnn_allow_tf32`, on by default) and for products and attentions
    (`float32_matmul_precision`, "highest" by default), so that a `default` case on an NVIDIA GPU is a mixture; devices
    without TF32 compute in fp32. What is allowed is taken for what is used: a convolution for which cuDNN has no TF32
    kernel (a depthwise one) is held against a peak that it can't reach.

    Times, not rates, are added: 90 operations at 450 per second and 10 at 50 take 0.4 s, so the peak of the 100 is
    250, not 410.

    None where nothing was counted, or a part has no peak that is known (int8, for one).
    """
    by_path: defaultdict[str, int] = defaultdict(int)
    for operator, by_dtype in flops.by_operator.items():
        for dtype, operations in by_dtype.items():
            by_path[_path(operator, dtype, flags, peaks)] += operations
    if not flops.total or not set(by_path) <= set(peaks.compute):
        return None
    return MixedPeak(
        flop_per_s=flops.total / sum(operations / peaks.compute[path].per_s for path, operations in by_path.items()),
        paths={path: operations / flops.total for path, operations in by_path.items()},
        source=" and ".join(dict.fromkeys(peaks.compute[path].source for path in by_path)),
    )


def _path(operator: str, dtype: str, flags: Mapping[str, str], peaks: Peaks) -> str:
    if dtype not in ("float32", "complex64"):
        return {"float64": "fp64", "float16": "fp16", "bfloat16": "bf16"}.get(dtype, dtype)
    is_cudnn = "conv" in operator or "rnn" in operator
    if is_cudnn:
        may_use_tf32 = flags.get("cudnn_allow_tf32") == "True"
    else:
        may_use_tf32 = flags.get("float32_matmul_precision", "highest") != "highest"
    return "tf32" if may_use_tf32 and "tf32" in peaks.compute else "fp32"


def _bound(
    measured: Measured, variant: str, latency_s: float, peak: MixedPeak | None, peaks: Peaks
) -> tuple[Bound, str]:
    """What holds a step back, and from what that was concluded.

    1. `launch`: by the breakdown, the device has no work for 50% of the latency or more. Without a breakdown: the
       host took 90% or more of the time of a step to launch it, so that the device had to wait for it, and neither
       ceiling is used to 50%. (A step that waits for the device by nature takes the host that long anyway, and the CPU
       is its own host: for these, only a breakdown can tell.)
    2. `compute` or `memory`, whichever ceiling is used more (the roofline: Williams et al., 2009,
       doi:10.1145/1498765.1498785), if it is used to 25% at least; to 50% at least where it is not known that the
       device is busy, or where one of the two is not known. Bytes are those of unfused eager kernels: of a candidate,
       they are not known. `memory` is not concluded where operations are missing (`Flops.without_formula`).
    3. `unknown` otherwise: nothing known explains the time (small or badly shaped kernels, for one).
    """
    result, flops = measured.variants[variant], measured.flops
    assert flops is not None
    uses: dict[Bound, float] = {}
    if peak is not None:
        uses[Bound.COMPUTE] = flops.total / latency_s / peak.flop_per_s
    if variant == EAGER_VARIANT and flops.bytes_moved is not None and peaks.memory is not None:
        uses[Bound.MEMORY] = flops.bytes_moved / latency_s / peaks.memory.per_s
    highest = max(uses.values(), default=0.0)
    shown = ", ".join(f"{bound} {use:.0%} used" for bound, use in uses.items()) or "no ceiling known"

    idle, host = _idle_share(result, latency_s), _host_share(measured, result)
    if idle is not None and idle >= IDLE_SHARE:
        return Bound.LAUNCH, f"the device is idle for {idle:.0%} of the step"
    if idle is None and host is not None and host >= HOST_SHARE and highest < CERTAIN_USE:
        return Bound.LAUNCH, f"launching takes the host {min(host, 1.0):.0%} of the step"
    is_busy = idle is not None or (host is not None and host < HOST_SHARE)
    if highest < (BUSY_USE if is_busy and len(uses) == 2 else CERTAIN_USE):
        return Bound.UNKNOWN, shown if variant == EAGER_VARIANT else f"{shown}, bytes of fused code are not known"
    winner = max(uses, key=lambda bound: uses[bound])
    if winner is Bound.MEMORY and flops.without_formula:
        return Bound.UNKNOWN, f"{shown}, but not all operations are counted"
    return winner, shown


def _idle_share(result: VariantResult, latency_s: float) -> float | None:
    """What the device's work in a profiled step leaves of the usual latency (profiling delays launches, not kernels).

    None without a breakdown. Where operators of the CPU look slower under the profiler, it is too low, at least 0.
    """
    if result.breakdown is None or not result.breakdown.steps:
        return None
    busy_s = median(step.active_s + step.movement_s for step in result.breakdown.steps)
    return max(0.0, 1 - busy_s / latency_s)


def _host_share(measured: Measured, result: VariantResult) -> float | None:
    """How much of a step's time in a loop without synchronisations the host needed to launch one."""
    if measured.host_syncs:
        return None
    shares = [run.host_s / (run.elapsed_s / run.steps) for run in result.back_to_back if run.host_s is not None]
    return median(shares) if shares else None
