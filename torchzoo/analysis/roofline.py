"""Compare a step with a device's peak, and find what bounds it: arithmetic, memory, or the host's launches."""

from __future__ import annotations

import enum
from collections import defaultdict
from collections.abc import Mapping
from statistics import median

import msgspec

from torchzoo import stats
from torchzoo.analysis.peaks import Peaks, peaks_of
from torchzoo.case import Case
from torchzoo.record import EAGER_VARIANT, Breakdown, Flops, Measured, VariantResult
from torchzoo.stats import Estimate

#: Launches bound a step if the device is idle for this share of it.
IDLE_SHARE = 0.5
#: The device had to wait if the host needs this share of a step's time to launch it.
HOST_SHARE = 0.9
#: The use of a peak that explains the time of a device that is known to be busy.
BUSY_USE = 0.25
#: The use of a peak that explains the time in any case.
CERTAIN_USE = 0.5


class RooflineBound(enum.StrEnum):
    COMPUTE = "compute"
    MEMORY = "memory"
    LAUNCH = "launch"
    UNKNOWN = "unknown"


class MixedPeak(msgspec.Struct, frozen=True, kw_only=True):
    """The rate at which a device that runs at its peaks would do a step's operations."""

    flop_per_s: float
    paths: dict[str, float]  # share of the operations by path: {"tf32": 0.99, "fp32": 0.01}
    source: str  # "datasheet", "measured 2026-11-21 with torch 2.15.0"


class Achieved(msgspec.Struct, frozen=True, kw_only=True):
    """The rate that a variant achieved. `mfu` and `peak` are None if no peak is known. `why` explains the bound."""

    flop_per_s: Estimate
    peak: MixedPeak | None
    mfu: Estimate | None
    bound: RooflineBound
    why: str


def known_peaks(case: Case, measured: Measured) -> Peaks:
    """The peaks of the device that a case ran on."""
    return peaks_of(measured.device_name, threads=measured.threads if case.device == "cpu" else None)


def achieved(measured: Measured, variant: str, peaks: Peaks) -> Achieved | None:
    """The rate that `variant` achieved; None if the operations were not counted.

    The operations are those of the eager step. The candidate's rate is the number of eager's operations over the
    candidate's time, whatever the candidate computes beside or instead of them (model FLOPs, as in MFU: Chowdhery et
    al., 2022, arXiv:2204.02311, appendix B).
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


class ReadRate(msgspec.Struct, frozen=True, kw_only=True):
    """The least rate at which a step reads its weights and caches; `share` is of the memory's peak if that is known."""

    bytes_per_s: Estimate
    share: Estimate | None


def read_rate(measured: Measured, variant: str, peaks: Peaks) -> ReadRate | None:
    """The bytes that a step must read over its time; None if the model does not declare them.

    A step that generates one token does little with what it reads, so the memory's peak bounds it.
    """
    if measured.bytes_read_per_step is None:
        return None
    latency_s, size = stats.latency_s(measured.blocks, variant), measured.bytes_read_per_step
    share = None if peaks.memory is None else _divided(size / peaks.memory.per_s, latency_s)
    return ReadRate(bytes_per_s=_divided(size, latency_s), share=share)


def _divided(amount: float, by: Estimate) -> Estimate:
    return Estimate(
        value=amount / by.value,
        low=amount / by.high,
        high=amount / by.low,
        confidence=by.confidence,
        of=by.of,
        count=by.count,
    )


def mixed_peak(flops: Flops, flags: Mapping[str, str], peaks: Peaks) -> MixedPeak | None:
    """The peak for a step's mixture of operations: their number over the time that they would take at the peaks.

    The path of an operator is the format of its operands, whatever the case's label says (under autocast: the format
    that autocast chose): fp64, fp16, bf16 or fp8, and for float32 either tf32 or fp32. PyTorch allows TF32 separately
    for convolutions and recurrent layers (cuDNN: `cudnn_allow_tf32`, on by default) and for products and attentions
    (`float32_matmul_precision`, "highest" by default). So a `default` case on an NVIDIA GPU is a mixture. Devices
    without TF32 compute in fp32. TF32 that is allowed counts as used: a convolution for which cuDNN has no TF32 kernel
    (a depthwise one) is compared with a peak that it can't reach.

    Times are added, not rates. For example, 90 operations at 450 per second and 10 at 50 per second take 0.4 s, so the
    peak of these 100 operations is 250, not 410.

    Returns:
        None if nothing was counted, or if the peak of a part (int8, for example) is not known.
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


_PATHS = {
    "float64": "fp64",
    "float16": "fp16",
    "bfloat16": "bf16",
    "float8_e4m3fn": "fp8",
    "float8_e5m2": "fp8",
}


def _path(operator: str, dtype: str, flags: Mapping[str, str], peaks: Peaks) -> str:
    if dtype not in ("float32", "complex64"):
        return _PATHS.get(dtype, dtype)
    is_cudnn = "conv" in operator or "rnn" in operator
    if is_cudnn:
        may_use_tf32 = flags.get("cudnn_allow_tf32") == "True"
    else:
        may_use_tf32 = flags.get("float32_matmul_precision", "highest") != "highest"
    return "tf32" if may_use_tf32 and "tf32" in peaks.compute else "fp32"


def _bound(
    measured: Measured, variant: str, latency_s: float, peak: MixedPeak | None, peaks: Peaks
) -> tuple[RooflineBound, str]:
    """The bound of a step, and the reason.

    1. `launch`: the breakdown shows that the device has no work for 50% of the latency or more. Without a breakdown:
       the host needs 90% or more of a step's time to launch it, so the device had to wait, and neither peak is used to
       50%.
       (A step that waits for the device by nature takes the host that long anyway, and the CPU is its own host. For
       such steps only a breakdown can tell.)
    2. `compute` or `memory`, whichever peak is used more (the roofline: Williams et al., 2009,
       doi:10.1145/1498765.1498785), if the use is at least 25%, or at least 50% if it is not known that the device is
       busy, or if only one of the two uses is known. Bytes are those of unfused eager kernels, so
       they are not known for a candidate. `memory` is not concluded if operations are missing
       (`Flops.without_formula`).
    3. `unknown` otherwise: no known use explains the time (small or badly shaped kernels, for example).
    """
    result, flops = measured.variants[variant], measured.flops
    assert flops is not None
    uses: dict[RooflineBound, float] = {}
    if peak is not None:
        uses[RooflineBound.COMPUTE] = flops.total / latency_s / peak.flop_per_s
    if variant == EAGER_VARIANT and flops.bytes_moved is not None and peaks.memory is not None:
        uses[RooflineBound.MEMORY] = flops.bytes_moved / latency_s / peaks.memory.per_s
    highest = max(uses.values(), default=0.0)
    shown = ", ".join(f"{bound} {use:.0%} used" for bound, use in uses.items()) or "no peak known"

    idle, host = _idle_share(result, latency_s), _host_share(measured, result)
    if idle is not None and idle >= IDLE_SHARE:
        return RooflineBound.LAUNCH, f"the device is idle for {idle:.0%} of the step"
    if idle is None and host is not None and host >= HOST_SHARE and highest < CERTAIN_USE:
        return RooflineBound.LAUNCH, f"launching takes the host {min(host, 1.0):.0%} of the step"
    is_busy = idle is not None or (host is not None and host < HOST_SHARE)
    if highest < (BUSY_USE if is_busy and len(uses) == 2 else CERTAIN_USE):
        return (
            RooflineBound.UNKNOWN,
            shown if variant == EAGER_VARIANT else f"{shown}, bytes of fused code are not known",
        )
    winner = max(uses, key=lambda bound: uses[bound])
    if winner is RooflineBound.MEMORY and flops.without_formula:
        return RooflineBound.UNKNOWN, f"{shown}, but not all operations are counted"
    return winner, shown


def _idle_share(result: VariantResult, latency_s: float) -> float | None:
    """The share of the usual latency in which the device is idle in profiled steps. None without a breakdown.

    (Profiling delays launches, not kernels.) Operators of a CPU may look slower under the profiler: then the share is
    too low, but never below 0.
    """
    busy = busy_s(result.breakdown)
    return None if busy is None else max(0.0, 1 - busy.value / latency_s)


def _host_share(measured: Measured, result: VariantResult) -> float | None:
    """The share of a step's time that the host needs to launch it, in a loop without synchronisations."""
    if measured.host_syncs:
        return None
    shares = [run.host_s / (run.elapsed_s / run.steps) for run in result.back_to_back if run.host_s is not None]
    return median(shares) if shares else None


# --- the parts of a profiled step ---


class KernelShare(msgspec.Struct, frozen=True, kw_only=True):
    """A kernel in the profiled steps."""

    name: str
    calls_per_step: float
    per_step_s: float
    share: float  # of the wall time of all profiled steps


def profiled_step_s(breakdown: Breakdown | None) -> float | None:
    """The median wall time of a profiled step; None without profiled steps."""
    return median(step.wall_s for step in breakdown.steps) if breakdown is not None and breakdown.steps else None


def busy_s(breakdown: Breakdown | None) -> stats.Estimate | None:
    """The median time in which the device works in a step (on the CPU: operators run); None if it is not known."""
    if breakdown is None or not breakdown.steps:
        return None
    return stats.median_estimate([step.active_s + step.movement_s + step.communication_s for step in breakdown.steps])


def busy_ratio(breakdown: Breakdown | None, other: Breakdown | None) -> stats.Estimate | None:
    """The time in which the device works in a step, over that of another breakdown; None if it is not known."""
    own_s, other_s = busy_s(breakdown), busy_s(other)
    if own_s is None or other_s is None or min(own_s.low, other_s.low) <= 0:
        return None
    return stats.quotient(own_s, other_s)


def longest_kernels(breakdown: Breakdown, most: int) -> list[KernelShare]:
    """Return the kernels that took longest, at most `most`; none without profiled steps."""
    if not breakdown.steps:
        return []
    steps, wall_s = len(breakdown.steps), sum(step.wall_s for step in breakdown.steps)
    return [
        KernelShare(
            name=kernel.name,
            calls_per_step=kernel.calls / steps,
            per_step_s=kernel.total_s / steps,
            share=kernel.total_s / wall_s,
        )
        for kernel in breakdown.kernels[:most]
    ]


def short_name(name: str, width: int = 56) -> str:
    """Return a kernel's name without its result type, cut to the width."""
    name = name.removeprefix("void ")
    return name if len(name) <= width else name[: width - 1] + "…"
