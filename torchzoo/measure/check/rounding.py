"""Imitate rounding in eager: by other weights, products, activations for the backward pass, or decisions; or damp it.

Weights change by one unit in the last place. Then everything that depends on them is off by rounding, but the backward
pass still reads what the forward pass has computed.

In compiled code the backward pass may read something else. A kernel keeps a result in fp32, takes its mean from there,
and stores the result in float16 for the backward pass. The stored numbers, less this mean, do not sum to zero. In eager
they do, since there both are of the rounded numbers. The gradient of a bias before a normalization is such a sum, zero
but for rounding, and compiled code may leave a hundred times as much of it as eager.

An integer that follows from a floating number (a mask, a token, an index) changes if that number lies so near an edge
that an allowed error puts it on the other side. Moving all these numbers shows how many integers change.

A library chooses which products use TF32: cuBLAS does not for each shape, and a compiler may pad a shape so that cuBLAS
does. So the error of eager's own step does not say how large the error of a right result can be. In the gradient of a
bias that is the sum of terms which cancel, it can be twenty times as large. Eager with the operands of every product
rounded to TF32 shows it.

A network of many normalizations and ReLUs amplifies rounding at random weights. A normalization's outputs lie around
zero, and a ReLU cuts half of them: rounding decides on which side those near zero are. After fifty layers the gradients
of two right computations in bf16 can have nothing in common. Damped weights, with raised biases, leave few outputs near
zero. Weights are inputs of compiled code, so the program stays the same.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _NormBase
from torch.utils._pytree import tree_leaves, tree_map

from torchzoo.measure.check.results import named_parameters
from torchzoo.measure.quantization import is_quantized_tensor
from torchzoo.model import Model
from torchzoo.model.dispatch import OperatorMode
from torchzoo.model.tensors import as_real, is_inexact, stored_numbers, tensors_in

#: So many changes are drawn, and larger tensors repeat them: a prime, so that rows get different changes.
_DRAWN = 1_000_003

_COARSE = (torch.float16, torch.bfloat16)


@torch.no_grad()
def perturb_weights(model: Model, epsilon: float, seed: int) -> None:
    """Change every weight (of a model without weights: its data) by `epsilon`, relatively, up, down or not at all."""
    weights = [parameter for _, parameter in named_parameters(model) if not is_quantized_tensor(parameter)]
    generator = torch.Generator().manual_seed(seed)
    for tensor in map(stored_numbers, filter(is_inexact, weights or tensors_in(model.batch))):
        signs = torch.randint(-1, 2, tensor.shape, generator=generator, dtype=torch.int8, device="cpu")
        tensor.mul_(1 + epsilon * signs.to(tensor.device, tensor.dtype))


@contextlib.contextmanager
def perturbed_activations(epsilon: float, seed: int) -> Iterator[None]:
    """Let the backward pass read each activation in float16 or bfloat16 changed by `epsilon`, as weights are.

    The forward pass uses the unchanged numbers, and parameters do not change. NumPy draws the changes before the step:
    a random operator of PyTorch in the step would be taken for the model's own and replayed. The step raises a
    RuntimeError where it uses `torch.func`, which allows no such change.
    """
    signs = torch.from_numpy(np.random.default_rng(seed).integers(-1, 2, _DRAWN, dtype=np.int8))
    by_device: dict[torch.device, Tensor] = {}
    read = 0  # the number of readings; each begins at another sign

    def keep(tensor: Tensor) -> tuple[Tensor, bool]:
        is_parameter = tensor.is_leaf and tensor.requires_grad
        is_coarse = tensor.dtype in _COARSE and tensor.layout is torch.strided and not is_quantized_tensor(tensor)
        return tensor.detach(), is_coarse and not is_parameter

    @torch.no_grad()
    def reread(kept: tuple[Tensor, bool]) -> Tensor:
        nonlocal read
        saved, is_activation = kept
        if not is_activation:
            return saved
        if saved.device not in by_device:
            by_device[saved.device] = signs.to(saved.device)
        read += 1
        drawn = by_device[saved.device].roll(read)
        times = -(-saved.numel() // _DRAWN)
        changes = drawn.repeat(times)[: saved.numel()].view(saved.shape)
        return saved.clone().mul_(1 + epsilon * changes.to(saved.dtype))

    with torch.autograd.graph.saved_tensors_hooks(keep, reread):
        yield


#: Operators that decide by floating numbers: comparisons, choices of the largest, an order, and rounding to integers.
#: Equality is left out: numbers that are equal by design stay equal.
DECISIONS = frozenset(
    f"aten::{name}"
    for name in (
        *("gt", "ge", "lt", "le", "argmax", "argmin", "topk", "sort", "argsort", "msort", "kthvalue", "searchsorted"),
        *("bucketize", "round", "floor", "ceil", "trunc", "sign", "heaviside", "median", "mode"),
    )
)
#: Operators that decide if they return integers, such as the place of their choice.
_DECIDE_BY_RESULT = frozenset(("aten::max", "aten::min", "aten::_to_copy"))


class MovedDecisions(OperatorMode):
    """Move the numbers by which a step decides, each by `tolerance` times their root mean square, up or down.

    `sign` is 1 or -1: numbers that move up with the one move down with the other. So a number that an error of this
    size can put on the other side of an edge is there with one of them. Integers stay: rounding does not change them.
    """

    def __init__(self, tolerance: float, sign: int) -> None:
        super().__init__()
        self._tolerance, self._sign = tolerance, sign
        self._signs = np.random.default_rng(0)  # PyTorch's random operators would be taken for the model's own

    def see(self, func: Any, args: Any, kwargs: Any) -> Any:
        name = func._schema.name
        if name in _DECIDE_BY_RESULT:
            results = func(*args, **kwargs)
            if all(leaf.is_floating_point() for leaf in tree_leaves(results)):
                return results
        elif name not in DECISIONS:
            return func(*args, **kwargs)
        return func(*tree_map(self._moved, args), **kwargs)

    def _moved(self, leaf: Any) -> Any:
        if not isinstance(leaf, Tensor) or not leaf.is_floating_point() or not leaf.numel():
            return leaf
        can_move = leaf.isfinite() & (leaf != leaf.round())
        scale = torch.where(leaf.isfinite(), leaf, 0.0).double().square().mean().sqrt()
        drawn = torch.from_numpy(self._signs.integers(0, 2, leaf.numel(), dtype=np.int8)).view(leaf.shape)
        by = self._sign * self._tolerance * scale * (2 * drawn.to(leaf.device) - 1)
        return torch.where(can_move, leaf + by.to(leaf.dtype), leaf)


#: Bits of fp32's mantissa that TF32 does not have.
_DROPPED_BITS = 13

_aten = torch.ops.aten

#: Operators that multiply matrices, by the places of their operands. Addends (a bias) are not rounded.
_PRODUCTS = {
    _aten.mm.default: (0, 1),
    _aten.bmm.default: (0, 1),
    _aten.addmm.default: (1, 2),
    _aten.baddbmm.default: (1, 2),
    _aten.convolution.default: (0, 1),
    _aten.convolution_backward.default: (0, 1, 2),
}


def rounded_to_tf32(values: Tensor) -> Tensor:
    """Round fp32 numbers, or complex numbers of two, to ten bits of mantissa, to the nearest.

    Infinities and NaN do not change, nor do other dtypes and sparse tensors, whose products never use TF32.
    """
    if values.dtype is torch.complex64 and values.layout is torch.strided:
        return torch.view_as_complex(rounded_to_tf32(as_real(values)))
    if values.dtype is not torch.float32 or values.layout is not torch.strided:
        return values
    bits = values.contiguous().view(torch.int32)
    nearest = (bits + (1 << _DROPPED_BITS - 1)) & -(1 << _DROPPED_BITS)
    return torch.where(values.isfinite(), nearest.view(torch.float32), values)


class RoundedProducts(OperatorMode):
    """Round the operands of all products to TF32, also in the backward pass."""

    def see(self, func: Any, args: Any, kwargs: Any) -> Any:
        if func not in _PRODUCTS:
            made_of_others = self.run_parts(func, args, kwargs)
            return func(*args, **kwargs) if made_of_others is NotImplemented else made_of_others
        places = _PRODUCTS[func]
        rounded = [rounded_to_tf32(value) if place in places else value for place, value in enumerate(args)]
        results = func(*rounded, **kwargs)
        if func is _aten.convolution_backward.default and results[2] is not None:
            return (*results[:2], args[0].sum([0, *range(2, args[0].ndim)]))  # the bias's gradient is a sum, no product
        return results


#: In standard deviations of a normalization's outputs. With 3, a ReLU cuts one in 740 of them. (In mnasnet_100 and
#: selecsls42b under autocast on a CPU, half of the gradients are off by at least 1.0 and 1.2 with the models' own
#: weights, by 0.16 and 0.13 with 2, by 0.09 and 0.05 with 3, and by 0.08 and 0.09 with 5.)
RAISED_BY = 3.0


def dampable_biases(model: Model) -> Iterator[nn.Parameter]:
    """Yield the biases of batch, instance and group normalizations; no ReLU follows layer normalizations."""
    for network in model.networks().values():
        for module in network.modules():
            if isinstance(module, _NormBase | nn.GroupNorm) and isinstance(module.bias, nn.Parameter):
                yield module.bias


@torch.no_grad()
def damp_weights(model: Model) -> None:
    """Raise the biases of normalizations by `RAISED_BY`, a bias of several modules once."""
    for bias in dict.fromkeys(dampable_biases(model)):
        bias.add_(RAISED_BY)
