"""Imitate rounding in eager by other weights, by other activations for the backward pass, or by moved decisions.

Weights change by one unit in the last place. Then everything that depends on them is off by rounding, but the backward
pass still reads what the forward pass has computed.

In compiled code the backward pass may read something else. A kernel keeps a result in fp32, takes its mean from there,
and stores the result in float16 for the backward pass. The stored numbers, less this mean, do not sum to zero. In eager
they do, since there both are of the rounded numbers. The gradient of a bias before a normalization is such a sum, zero
but for rounding, and compiled code may leave a hundred times as much of it as eager.

An integer that follows from a floating number (a mask, a token, an index) changes if that number lies so near an edge
that an allowed error puts it on the other side. Moving all these numbers shows how many integers change.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.utils._pytree import tree_leaves, tree_map

from torchzoo.measure.check.results import named_parameters
from torchzoo.measure.quantization import is_quantized_tensor
from torchzoo.model import Model
from torchzoo.model.dispatch import OperatorMode
from torchzoo.model.tensors import is_inexact, stored_numbers, tensors_in

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
