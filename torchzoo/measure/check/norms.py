"""Compute norms of results and of their differences, in fp64.

Results are on the host. A large tensor is copied piece by piece to the device of the case, and only sums come back: a
host takes minutes of processor time for a model of a thousand million parameters, and writes temporaries of many GB.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
from torch import Tensor

#: Elements of a piece. An accelerator then needs a few hundred MB, and temporaries fit into the caches of a CPU.
_HOST_PIECE = 2**18
_ACCELERATOR_PIECE = 2**22


def l2_norm(values: Tensor, device: torch.device | None = None) -> float:
    """Return the norm of all elements, computed by `device`, by default the device of the values."""
    if values.is_sparse:
        return _norm_of(lambda piece: piece, values.coalesce().values(), device=device)
    return _norm_of(lambda piece: piece, values, device=device)


def finite_norm(values: Tensor, weights: Tensor | None, device: torch.device) -> float:
    """Return the norm of all elements that are finite, each times its weight if there are weights."""
    factors = () if weights is None else (weights,)
    if values.is_sparse and all(factor.is_sparse for factor in factors):
        return l2_norm(math.prod(factors, start=values.double()), device)
    dense = [tensor.to_dense() for tensor in (values, *factors)]
    return _norm_of(lambda v, *w: math.prod(w, start=v.nan_to_num(0.0, 0.0, 0.0)), *dense, device=device)


def distance(a: Tensor, b: Tensor, weights: Tensor | None, device: torch.device) -> float:
    """Return the norm of a - b, each element times its weight if there are weights.

    Elements that are the same infinity or both NaN count as equal.
    """
    factors = () if weights is None else (weights,)
    if a.is_sparse and b.is_sparse and all(factor.is_sparse for factor in factors):
        return l2_norm(math.prod(factors, start=a.double() - b.double()), device)
    dense = [tensor.to_dense() for tensor in (a, b, *factors)]
    return _norm_of(lambda x, y, *w: math.prod(w, start=_difference(x, y)), *dense, device=device)


def _difference(a: Tensor, b: Tensor) -> Tensor:
    same = (a == b) | (a.isnan() & b.isnan())
    return torch.where(same, 0.0, a - b)


def _norm_of(function: Callable[..., Tensor], *tensors: Tensor, device: torch.device | None) -> float:
    """Return the norm of the results of an elementwise function of tensors of one shape."""
    device = device if device is not None and _has_fp64(device) else tensors[0].device
    flat = [tensor.detach().reshape(-1) for tensor in tensors]
    length = _HOST_PIECE if device.type == "cpu" else _ACCELERATOR_PIECE
    total = torch.zeros((), dtype=torch.float64, device=device)
    for start in range(0, flat[0].numel(), length):
        pieces = [one[start : start + length].to(device).double() for one in flat]
        total += torch.linalg.vector_norm(function(*pieces)).square()
    return math.sqrt(float(total))


def _has_fp64(device: torch.device) -> bool:
    return device.type != "mps"
