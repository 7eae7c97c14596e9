"""The limits of errors, for each precision."""

from __future__ import annotations

from typing import NamedTuple

import torch

from torchzoo.case import NativeDtype, Precision, ResultKind
from torchzoo.devices import device_of


class Tolerances(NamedTuple):
    """The errors that are allowed at a precision, however small eager's own error is."""

    forward: float  # of losses, outputs and buffers, relative
    backward: float  # of gradients, and of what they add to parameters, relative
    unequal: float  # share of integers that may differ
    unmatched: float  # share of detections that may have no partner


_BF16 = Tolerances(forward=5e-2, backward=1e-1, unequal=0.05, unmatched=0.2)

#: By the coarsest arithmetic of a case. A model's metadata.yaml may have exceptions.
#: With int8wo and int4wo the products are in bf16, and the reference has the same quantized weights. With fp8 the
#: reference rounds operands in the same way. But numbers that differ by bf16's rounding before a layer may be rounded
#: to different neighbours in float8, which are 2^-3 apart.
TOLERANCES = {
    Precision.FP64: Tolerances(forward=1e-9, backward=1e-7, unequal=0.0, unmatched=0.01),
    Precision.FP32: Tolerances(forward=1e-4, backward=1e-3, unequal=0.0, unmatched=0.03),
    Precision.TF32: Tolerances(forward=5e-3, backward=2e-2, unequal=0.01, unmatched=0.1),
    Precision.FP16: Tolerances(forward=1e-2, backward=5e-2, unequal=0.02, unmatched=0.1),
    Precision.BF16: _BF16,
    Precision.INT8WO: _BF16,
    Precision.INT4WO: _BF16,
    Precision.FP8: Tolerances(forward=1e-1, backward=2e-1, unequal=0.1, unmatched=0.3),
}

#: An error may be this many times as large as eager's own.
EAGER_ERROR_MULTIPLE = 3.0

#: No larger error is accepted because eager's own is large. Where the limit would be higher, nothing is judged.
LARGEST_ALLOWED = 0.3

#: A tensor is wrong if its error is more than this many times what rounding explains, even where rounding explains so
#: much that no smaller error can be judged.
MOST_TIMES = 10.0

#: The relative change of weights that imitates rounding. Where sums are kept in fp32 (TF32, fp16, bf16) it is one unit
#: in the last place. At fp32 and fp64 it is sixteen: sums of thousands of terms are rounded as the terms are.
#: (Eager's batch normalisation on the CPU adds in fp64, inductor's in fp32. In resnet18 their statistics are off by
#: 1e-7 and by 2e-6, so eager's own error does not say how large the error of a correct result can be.)
PERTURBATIONS = {
    Precision.FP64: 16 * 2.0**-52,
    Precision.FP32: 16 * 2.0**-23,
    Precision.TF32: 2.0**-10,
    Precision.FP16: 2.0**-10,
    Precision.BF16: 2.0**-7,
    Precision.INT8WO: 2.0**-7,  # for the weights that are not quantized
    Precision.INT4WO: 2.0**-7,
    Precision.FP8: 2.0**-7,
}

_FORWARD = (ResultKind.LOSS, ResultKind.OUTPUTS, ResultKind.BUFFERS, ResultKind.STATE)


def coarsest_precision(precision: Precision, native_dtype: NativeDtype, device: torch.device) -> Precision:
    """Return the coarsest precision in which a case computes, with `default` and `amp` resolved."""
    by_dtype = {torch.float16: Precision.FP16, torch.bfloat16: Precision.BF16}
    if precision is Precision.AMP:
        return by_dtype[torch.get_autocast_dtype(device.type)]
    if precision is Precision.DEFAULT and native_dtype is NativeDtype.FP64:
        return Precision.FP64
    if precision is Precision.DEFAULT:  # convolutions may use TF32 where the device has it
        return Precision.TF32 if device_of(device).computes_in("tf32") else Precision.FP32
    return {Precision.AMP_FP16: Precision.FP16, Precision.AMP_BF16: Precision.BF16}.get(precision, precision)


def tolerance_of(kind: ResultKind, precision: Precision) -> float:
    """Return the tolerance of one kind of result; `precision` is a key of TOLERANCES."""
    tolerances = TOLERANCES[precision]
    if kind is ResultKind.INTEGERS:
        return tolerances.unequal
    if kind is ResultKind.DETECTIONS:
        return tolerances.unmatched
    return tolerances.forward if kind in _FORWARD else tolerances.backward
