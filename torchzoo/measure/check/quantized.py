"""Build fp64 references of models that are quantized by a precision, or that round themselves in training.

The reference of a precision has the same quantization, implemented here without torchao and its kernels.

Weights are quantized as the label says and kept as the fp64 numbers that they represent. With `fp8`, the operands of
each product are rounded to float8 in the same way, and multiplied in fp64. So a wrong scale, packing or kernel shows as
an error, and the loss of accuracy that quantization is known to cause does not.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.ao.quantization import FakeQuantizeBase
from torch.utils._pytree import tree_map

from torchzoo.case import Precision
from torchzoo.measure.quantization import INT4_GROUP, layers_to_quantize
from torchzoo.model import Model


def quantize_reference(model: Model, precision: Precision) -> None:
    """Make the layers of `model`, which is in bf16, those of a reference. The caller then casts the model to fp64."""
    for network in model.networks().values():
        for layer in layers_to_quantize(network, precision).values():
            if precision is Precision.FP8:
                layer.forward = partial(_float8_linear, layer)  # type: ignore[method-assign]
            else:
                rounded = (int8_rounded if precision is Precision.INT8WO else int4_rounded)(layer.weight.detach())
                layer.weight = nn.Parameter(rounded, requires_grad=False)


def keep_fake_quantization_single(model: Model) -> None:
    """Let fake quantization (`torch.ao.quantization`), which exists in fp32 only, compute so in a model in fp64.

    Its inputs and outputs are in fp64. Rounding to 256 steps hides the rounding of fp32.
    """
    for module in fake_quantizations(model):
        module.float()
        module.register_forward_pre_hook(lambda _, args: tuple(tree_map(_single, args)))
        module.register_forward_hook(lambda _, __, output: tree_map(_double, output))


def fake_quantizations(model: Model) -> list[FakeQuantizeBase]:
    """Return the modules of a model that round to steps in training, by `torch.ao.quantization`."""
    modules = [module for network in model.networks().values() for module in network.modules()]
    return [module for module in modules if isinstance(module, FakeQuantizeBase)]


def derived_buffers(network: nn.Module) -> set[str]:
    """Return the names of buffers that fake quantization computes from ranges, which are compared in their place.

    Zero points are integers, and rounding can make them differ for ranges that are equal but for fp32's rounding.
    """
    modules = [path for path, module in network.named_modules() if isinstance(module, FakeQuantizeBase)]
    return {f"{path}.{name}" for path in modules for name in ("scale", "zero_point")}


def _single(leaf: Any) -> Any:
    return leaf.float() if isinstance(leaf, Tensor) and leaf.is_floating_point() else leaf


def _double(leaf: Any) -> Any:
    return leaf.double() if isinstance(leaf, Tensor) and leaf.is_floating_point() else leaf


def int8_rounded(weight: Tensor) -> Tensor:
    """Return a weight (out, in) after rounding, in fp64: multiples of a scale of each row, from -128 to 127.

    The scale is rounded to the weight's dtype.
    """
    scale = (weight.abs().amax(dim=1, keepdim=True) / 127.5).clamp_min(torch.finfo(torch.float32).eps).double()
    return (weight.double() / scale).round().clamp(-128, 127) * scale


def int4_rounded(weight: Tensor) -> Tensor:
    """Return a bf16 weight (out, in) after rounding, in fp64: 16 equal steps from least to greatest in each group.

    Scale and zero point are stored in bf16, and are rounded before the numbers are.
    """
    rows, columns = weight.shape
    groups = weight.reshape(rows, columns // INT4_GROUP, INT4_GROUP)
    low, high = (extreme.unsqueeze(-1) for extreme in groups.aminmax(dim=-1))
    scale = ((high - low) / 15).clamp_min(torch.finfo(weight.dtype).eps)
    zero = low + scale * 8
    steps = ((groups - (zero - scale * 8)) / scale).round().clamp(0, 15)
    return ((steps.double() - 8) * scale.double() + zero.double()).reshape(rows, columns)


def float8_rounded(values: Tensor, dtype: torch.dtype) -> Tensor:
    """Round values to float8, with one scale for all, which maps the largest value to the largest of `dtype`."""
    largest = torch.finfo(dtype).max
    scale = values.abs().amax().clamp_min(1e-12) / largest
    return (values / scale).clamp(-largest, largest).float().to(dtype).to(values.dtype) * scale


class _Float8Product(torch.autograd.Function):
    """x (..., in) times the transposed weight (out, in), and both gradients, each a product of float8 operands."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor) -> Tensor:
        x, weight = (float8_rounded(operand, torch.float8_e4m3fn) for operand in (x, weight))
        ctx.save_for_backward(x, weight)
        return x @ weight.t()

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, Tensor]:
        x, weight = ctx.saved_tensors
        gradient = float8_rounded(gradients[0], torch.float8_e5m2)
        return gradient @ weight, gradient.flatten(0, -2).t() @ x.flatten(0, -2)


def _float8_linear(layer: nn.Linear, x: Tensor) -> Tensor:
    product: Tensor = _Float8Product.apply(x, layer.weight)
    return product if layer.bias is None else product + layer.bias
