"""What TF32 may do to results: eager with the operands of every product rounded to it.

Which products use TF32 is the library's choice: cuBLAS does not use it for each shape, and a compiler may pad a shape
so that it does. So the error of eager's own step does not say how large the error of a right result can be. In the
gradient of a bias that is the sum of terms which cancel, it can be twenty times as large.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from torchzoo.model.dispatch import OperatorMode
from torchzoo.model.tensors import as_real

#: Bits of fp32's mantissa that TF32 does not have.
_DROPPED_BITS = 13

_aten = torch.ops.aten

#: Operators that multiply matrices, by the places of their operands. What is added (a bias) is not rounded.
_PRODUCTS = {
    _aten.mm.default: (0, 1),
    _aten.bmm.default: (0, 1),
    _aten.addmm.default: (1, 2),
    _aten.baddbmm.default: (1, 2),
    _aten.convolution.default: (0, 1),
    _aten.convolution_backward.default: (0, 1, 2),
}


def rounded_to_tf32(values: Tensor) -> Tensor:
    """Fp32 numbers, or complex ones of two, with ten bits of mantissa, rounded to the nearest.

    Infinities and NaN stay, and so do other dtypes and sparse tensors, whose products never use TF32.
    """
    if values.dtype is torch.complex64 and values.layout is torch.strided:
        return torch.view_as_complex(rounded_to_tf32(as_real(values)))
    if values.dtype is not torch.float32 or values.layout is not torch.strided:
        return values
    bits = values.contiguous().view(torch.int32)
    nearest = (bits + (1 << _DROPPED_BITS - 1)) & -(1 << _DROPPED_BITS)
    return torch.where(values.isfinite(), nearest.view(torch.float32), values)


class RoundedProducts(OperatorMode):
    """Rounds the operands of all products to TF32, those of the backward pass included."""

    def see(self, func: Any, args: Any, kwargs: Any) -> Any:
        if func not in _PRODUCTS:
            made_of_others = self.run_parts(func, args, kwargs)
            return func(*args, **kwargs) if made_of_others is NotImplemented else made_of_others
        places = _PRODUCTS[func]
        rounded = [rounded_to_tf32(value) if place in places else value for place, value in enumerate(args)]
        results = func(*rounded, **kwargs)
        if func is _aten.convolution_backward.default and results[2] is not None:
            return (*results[:2], args[0].sum([0, *range(2, args[0].ndim)]))  # the bias's is a sum, and no product
        return results
