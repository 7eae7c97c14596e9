"""Formulas of floating-point operations: PyTorch's, and those that PyTorch lacks or has wrong.

A formula takes an operator's operands and, as `out_val`, its result, and returns the number of operations.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from math import prod
from typing import Any

import torch
from torch import Tensor
from torch._higher_order_ops.flex_attention import flex_attention, flex_attention_backward
from torch.utils.flop_counter import flop_registry

from torchzoo.model.tensors import stored_numbers

aten = torch.ops.aten


def _matrix_vector(matrix: Tensor, _vector: Tensor, **_: Any) -> int:
    return 2 * matrix.numel()


def _add_matrix_vector(_bias: Tensor, matrix: Tensor, _vector: Tensor, **_: Any) -> int:
    return 2 * matrix.numel()


def _dot(a: Tensor, _b: Tensor, **_: Any) -> int:
    return 2 * a.numel()


def _product(a: Tensor, b: Tensor, *_args: Any, **_: Any) -> int:
    return 2 * a.numel() * b.shape[-1]


def _add_product(_bias: Tensor, a: Tensor, b: Tensor, *_args: Any, **_: Any) -> int:
    return 2 * a.numel() * b.shape[-1]


def _grouped_product(a: Tensor, b: Tensor, *_args: Any, **_: Any) -> int:
    """Count a product in groups of the rows of a, of the columns of b, or of the summed dimension."""
    if a.ndim == 3 and b.ndim == 2:
        return 2 * a[0].numel() * b.shape[-1]
    return 2 * a.numel() * b.shape[-1]


def _packed_product(a: Tensor, *_args: Any, out_val: Tensor, **_: Any) -> int:
    return 2 * a.shape[-1] * out_val.numel()


def _solve_triangular(a: Tensor, _b: Tensor, *, unitriangular: bool = False, out_val: Tensor, **_: Any) -> int:
    """Count for each unknown a multiply-add with each earlier unknown, and a division."""
    unknowns = a.shape[-1]
    right_hand_sides = out_val.numel() // unknowns
    return right_hand_sides * unknowns * (unknowns - 1 + (not unitriangular))


def _euclidean_distances(a: Tensor, b: Tensor, **_: Any) -> int:
    """Count a product of all rows of a with all of b, with two more columns for squared norms and ones."""
    return 2 * prod(a.shape[:-1]) * b.shape[-2] * (a.shape[-1] + 2)


def _trilinear(
    a: Tensor, b: Tensor, c: Tensor, expand_a: list[int], expand_b: list[int], expand_c: list[int], *_: Any, **__: Any
) -> int:
    """Count two multiplications and an addition for each element of the three operands' common shape."""
    shapes = []
    for tensor, dimensions in ((a, expand_a), (b, expand_b), (c, expand_c)):
        shape = list(tensor.shape)
        for dimension in dimensions:
            shape.insert(dimension, 1)
        shapes.append(shape)
    return int(3 * prod(max(sizes) for sizes in zip(*shapes, strict=True)))


def _convolution_backward(
    grad_output: Tensor,
    x: Tensor,
    weight: Tensor,
    _bias_sizes: Any,
    _stride: Any,
    _padding: Any,
    _dilation: Any,
    transposed: bool,  # noqa: FBT001  by position, as the operator has it
    _output_padding: Any,
    _groups: int,
    output_mask: list[bool],
    **_: Any,
) -> int:
    """Count for each gradient the operations of the forward pass.

    (PyTorch's own formula, 2.15, counts the weight's gradient `groups` times.)
    """
    batch, *positions = (x if transposed else grad_output).shape
    forward = 2 * batch * prod(positions[1:]) * weight.numel()
    return forward * sum(output_mask[:2])


def _rnn(x: Tensor, weights: Iterable[Tensor]) -> int:
    """Count a product of each weight matrix of each layer and direction with a vector per sequence and time step."""
    tokens = x.numel() // x.shape[-1]
    return 2 * tokens * sum(weight.numel() for weight in weights if weight.ndim == 2)


def _cudnn_rnn(x: Tensor, weights: list[Tensor], *_args: Any, **_: Any) -> int:
    return _rnn(x, weights)


def _cudnn_rnn_backward(x: Tensor, weights: list[Tensor], *args: Any, **_: Any) -> int:
    """Count the data's gradient, and the weights' if the mask (the last operand) asks for it."""
    return _rnn(x, weights) * (2 if args[-1][3] else 1)


def _mkldnn_rnn(x: Tensor, w_input: Tensor, w_hidden: Tensor, *_args: Any, **_: Any) -> int:
    return _rnn(x, (w_input, w_hidden))


def _mkldnn_rnn_backward(x: Tensor, w_input: Tensor, w_hidden: Tensor, *_args: Any, **_: Any) -> int:
    return 2 * _rnn(x, (w_input, w_hidden))


def _quantized_convolution(_x: Tensor, packed: Any, *_args: Any, out_val: Tensor, **_: Any) -> int:
    """Use the weight (channels out, channels in of a group, kernel ...) to which `packed` unpacks."""
    weight: Tensor = packed.unpack()[0]
    return 2 * out_val.numel() * prod(weight.shape[1:])


def _quantized_linear(x: Tensor, _packed: Any, *_args: Any, out_val: Tensor, **_: Any) -> int:
    return 2 * out_val.numel() * x.shape[-1]


def _deformable_convolution(_x: Tensor, weight: Tensor, *_args: Any, out_val: Tensor, **_: Any) -> int:
    """Count the convolution itself; sampling at offsets is interpolation, a few operations per element."""
    return 2 * out_val.numel() * prod(weight.shape[1:])


def _deformable_convolution_backward(grad: Tensor, _x: Tensor, weight: Tensor, *_args: Any, **_: Any) -> int:
    """Count the gradients of the sampled columns and of the weight."""
    return 2 * 2 * grad.numel() * prod(weight.shape[1:])


def sparse_product(*operands: Any, **_: Any) -> int:
    """Count a product of a sparse and a dense matrix, the last two operands: each stored number with a row or column.

    AssertionError for other operands: nested tensors, and two sparse ones, whose numbers may not meet.
    """
    a, b = [operand for operand in operands if isinstance(operand, Tensor)][-2:]
    assert not a.is_nested
    assert not b.is_nested
    assert (a.layout is torch.strided) != (b.layout is torch.strided)
    if b.layout is torch.strided:
        return 2 * _stored(a) * (b.shape[-1] if b.ndim > 1 else 1)
    return 2 * _stored(b) * (a.shape[-2] if a.ndim > 1 else 1)


def _stored(sparse: Tensor) -> int:
    return stored_numbers(sparse).numel() // (2 if sparse.is_complex() else 1)


def _attention(query: Tensor, key: Tensor, value: Tensor, *_: Any, **__: Any) -> int:
    """Count the scores and their sum over values, for all pairs. Heads of queries may share keys and values."""
    return 2 * query.shape[:-1].numel() * key.shape[-2] * (query.shape[-1] + value.shape[-1])


def _attention_backward(_grad: Tensor, query: Tensor, key: Tensor, value: Tensor, *_: Any, **__: Any) -> int:
    """Count the scores again, and two products for each of the two of the forward pass."""
    return 2 * query.shape[:-1].numel() * key.shape[-2] * (3 * query.shape[-1] + 2 * value.shape[-1])


def _flex_attention(
    query: Tensor, key: Tensor, value: Tensor, _score: Any, mask: tuple[Any, ...], *_: Any, **__: Any
) -> int:
    """Count the scores and their sum over values, for the pairs in blocks that the block mask keeps, even in part."""
    return 2 * _kept_pairs(query, key, mask) * (query.shape[-1] + value.shape[-1])


def _flex_attention_backward(query: Tensor, key: Tensor, value: Tensor, *args: Any, **_: Any) -> int:
    """Count the scores again, and two products for each of the two of the forward pass."""
    mask = next(operand for operand in args if isinstance(operand, tuple))
    return 2 * _kept_pairs(query, key, mask) * (3 * query.shape[-1] + 2 * value.shape[-1])


def _kept_pairs(query: Tensor, key: Tensor, mask: tuple[Any, ...]) -> int:
    """Count queries times keys in the blocks of `BlockMask.as_tuple()`, over the batch and all heads of the queries."""
    _, _, partial_counts, partial_indices, full_counts, full_indices, *_, rows, columns, _ = mask
    pairs = _pairs_in(partial_counts, partial_indices, rows, columns, query.shape[-2], key.shape[-2])
    if full_counts is not None:
        pairs += _pairs_in(full_counts, full_indices, rows, columns, query.shape[-2], key.shape[-2])
    sharing: int = query.shape[:2].numel() // partial_counts.shape[:2].numel()  # batch and heads that share a mask
    return pairs * sharing


def _pairs_in(counts: Tensor, indices: Tensor, rows: int, columns: int, queries: int, keys: int) -> int:
    """Count pairs in the first `counts` of `indices` (B, H, query blocks, key blocks). Last blocks may be cut."""
    assert not counts.is_meta  # on the meta device it is not known which blocks are kept
    counts, indices = counts.cpu(), indices.cpu()
    is_kept = torch.arange(indices.shape[-1]) < counts.unsqueeze(-1)
    widths = (keys - indices * columns).clamp(0, columns) * is_kept
    heights = (queries - torch.arange(counts.shape[-1]) * rows).clamp(0, rows)
    return int((widths.sum(-1) * heights).sum())


_KERNELS = ("flash_attention", "efficient_attention", "cudnn_attention", "flash_attention_for_cpu")

FORMULAS: dict[Any, Callable[..., int]] = {
    aten.addmm_: flop_registry[aten.addmm],
    aten.baddbmm_: flop_registry[aten.baddbmm],
    aten.mv: _matrix_vector,
    aten.addmv: _add_matrix_vector,
    aten.addmv_: _add_matrix_vector,
    aten.dot: _dot,
    aten.vdot: _dot,
    aten.addbmm: _add_product,
    aten.addbmm_: _add_product,
    aten._addmm_activation: _add_product,
    aten._int_mm: _product,
    aten._grouped_mm: _grouped_product,
    aten._weight_int4pack_mm: _packed_product,
    aten._weight_int8pack_mm: _packed_product,
    aten.linalg_solve_triangular: _solve_triangular,
    aten._trilinear: _trilinear,
    aten._euclidean_dist: _euclidean_distances,
    aten.convolution_backward: _convolution_backward,
    aten._cudnn_rnn: _cudnn_rnn,
    aten._cudnn_rnn_backward: _cudnn_rnn_backward,
    aten.miopen_rnn: _cudnn_rnn,
    aten.miopen_rnn_backward: _cudnn_rnn_backward,
    aten.mkldnn_rnn_layer: _mkldnn_rnn,
    aten.mkldnn_rnn_layer_backward: _mkldnn_rnn_backward,
    flex_attention: _flex_attention,
    flex_attention_backward: _flex_attention_backward,
    # torch 2.11 has no formula for the CPU's attention, nor for grouped queries
    **{getattr(aten, f"_scaled_dot_product_{kernel}"): _attention for kernel in _KERNELS},
    **{getattr(aten, f"_scaled_dot_product_{kernel}_backward"): _attention_backward for kernel in _KERNELS},
}


_QUANTIZED_CONVOLUTIONS = ("conv1d", "conv1d_relu", "conv2d", "conv2d_relu", "conv3d", "conv3d_relu")
_QUANTIZED_LINEARS = ("linear", "linear_relu", "linear_dynamic", "linear_relu_dynamic")


def formulas() -> dict[Any, Callable[..., int]]:
    """Return all formulas: PyTorch's, FORMULAS, and those of quantized and torchvision operators that exist."""
    elsewhere: dict[Any, dict[str, Callable[..., int]]] = {
        torch.ops.quantized: dict.fromkeys(_QUANTIZED_CONVOLUTIONS, _quantized_convolution)
        | dict.fromkeys(_QUANTIZED_LINEARS, _quantized_linear),
        torch.ops.torchvision: {
            "deform_conv2d": _deformable_convolution,
            "_deform_conv2d_backward": _deformable_convolution_backward,
        },
    }
    there = {
        getattr(library, name): formula
        for library, by_name in elsewhere.items()
        for name, formula in by_name.items()
        if hasattr(library, name)
    }
    return {**flop_registry, **FORMULAS, **there}
