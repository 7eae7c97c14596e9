"""A reference: the memory that its steps need, and the distances of other results from it, which the check judges.

An error is a norm: ||x - reference|| / max(||reference||, floor) for each tensor. (`torch._dynamo.utils.same` compares
root mean squares in the same way.) The floor is a small part of the average norm of tensors of that size and kind. So
noise in a gradient that should be zero does not count as an error. Where a gradient is zero at fp64 but for rounding,
the floor is higher.
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial
from statistics import median
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F
from torch.utils.checkpoint import checkpoint

from torchzoo.case import ResultKind
from torchzoo.machine.limits import available_bytes
from torchzoo.measure.check.matching import Detections, unmatched_share
from torchzoo.measure.check.norms import distance, finite_norm, l2_norm
from torchzoo.measure.check.results import Results
from torchzoo.model.tensors import stored_bytes

#: A norm counts as at least this part of the usual norm of a tensor of that size.
_FLOORS = dict.fromkeys((ResultKind.GRADIENTS, ResultKind.PARAMETERS, ResultKind.OPTIMIZER, ResultKind.BUFFERS), 1e-3)
_DEFAULT_FLOOR = 1e-6

#: A gradient is zero if its norm is less than this part of the usual norm, which is rounding at fp64: a sum of terms
#: that cancel. The rounding that remains is small relative to other gradients, but can be ten times as large with other
#: kernels. (The bias of a convolution before a batch normalization, pytorch_unet with fp16: 5e-6 of the usual norm in
#: eager, 5e-5 with inductor.)
_ZERO = 1e-9
_FLOORS_OF_ZEROS = dict.fromkeys((ResultKind.GRADIENTS, ResultKind.PARAMETERS, ResultKind.OPTIMIZER), 1e-2)
_HOST = torch.device("cpu")


class Reference:
    """The results with which others are compared, and the scale of each tensor. Errors are in units of that scale.

    The results are those at fp64, or, where there are none, those of eager. `device` computes the norms.
    """

    def __init__(self, results: Results, device: torch.device = _HOST) -> None:
        self.results = results
        self._device = device
        self._update_weights = results.update_weights
        self._update_weight_norms = {name: l2_norm(weights, device) for name, weights in self._update_weights.items()}
        self._update_weight_scale = self._scale_to_mean_one()
        self._scales = {kind: self._scales_of(kind, values) for kind, values in results.values.items()}

    def errors(self, kind: ResultKind, found: Results, expected: Results | None = None) -> dict[str, float]:
        """Return the distance of each result of a kind from the expected one, by default that of the reference.

        The unit is the norm in the reference. The distance is infinite if a result is missing, has another shape, or is
        not finite in other places than the expected one.
        """
        names = list(self.results.values[kind])
        ours = _by_name(found.values.get(kind, {}), names)
        theirs = _by_name((expected or self.results).values.get(kind, {}), names)
        return {name: self._error(kind, name, ours.get(name), theirs.get(name)) for name in names}

    def dtypes_unlike(self, found: Results) -> dict[str, tuple[torch.dtype, torch.dtype]]:
        """Return, by name, the dtypes of results whose dtype differs from the reference, and the reference's dtypes."""
        unlike = {}
        for kind, expected in self.results.values.items():
            ours = _by_name(found.values.get(kind, {}), list(expected))
            for name, theirs in expected.items():
                one = ours.get(name)
                if isinstance(theirs, Tensor) and isinstance(one, Tensor) and one.dtype != theirs.dtype:
                    unlike[name] = one.dtype, theirs.dtype
        return unlike

    def resolution(self, kind: ResultKind, found: Results) -> dict[str, float]:
        """Return the part of an update's error that the dtype of the stored parameter causes, in the same units."""
        if kind is not ResultKind.PARAMETERS:
            return {}
        return {
            name: found.resolution[name] * self._mean_update_weight(name) / scale if scale else 0.0
            for name, scale in self._scales[kind].items()
            if name in found.resolution
        }

    def _error(self, kind: ResultKind, name: str, ours: Any, theirs: Any) -> float:
        if ours is None or theirs is None:
            return math.inf
        if isinstance(theirs, Detections):
            return unmatched_share(ours, theirs)
        if ours.shape != theirs.shape:
            return math.inf
        if kind is ResultKind.INTEGERS:
            return float((ours != theirs).double().mean()) if ours.numel() else 0.0
        weights, unit = self._weighting(kind, name)
        off_by = unit * distance(ours, theirs, weights, self._device)
        if off_by == 0:
            return 0.0
        scale = self._scales[kind][name]
        return off_by / scale if scale > 0 and math.isfinite(off_by) else math.inf

    def _scales_of(self, kind: ResultKind, values: Mapping[str, Tensor | Detections]) -> dict[str, float]:
        found: dict[str, float] = {}
        for alike in _alike(kind, values):
            found |= self._scales_of_alike(kind, alike)
        return found

    def _scales_of_alike(self, kind: ResultKind, values: Mapping[str, Tensor | Detections]) -> dict[str, float]:
        norms = {
            name: self._finite_norm(kind, name, value)
            for name, value in values.items()
            if isinstance(value, Tensor) and kind is not ResultKind.INTEGERS
        }
        sizes = {name: values[name].numel() for name in norms}  # type: ignore[union-attr]
        usual = math.sqrt(sum(norm**2 for norm in norms.values()) / max(1, sum(sizes.values())))
        if kind is ResultKind.BUFFERS and norms:  # a mask of -1e38 would make the floors of all others too high
            usual = median(norm / math.sqrt(max(1, sizes[name])) for name, norm in norms.items())
        usual_norms = {name: usual * math.sqrt(size) for name, size in sizes.items()}
        return {name: max(norm, _floor(kind, norm, usual_norms[name])) for name, norm in norms.items()}

    def _finite_norm(self, kind: ResultKind, name: str, values: Tensor) -> float:
        weights, unit = self._weighting(kind, name)
        return unit * finite_norm(values, weights, self._device)

    def _weighting(self, kind: ResultKind, name: str) -> tuple[Tensor | None, float]:
        """Return the weights of the elements in a norm, and a factor of the whole norm.

        In an update, each element is weighted by the magnitude of its gradient. Adam's first steps depend on the sign
        of the gradient alone, so noise in a gradient near zero reverses an update. With these weights, the relative
        error of an update is at most about twice that of its gradient. They also say how much the loss would notice
        the error.
        """
        if kind is ResultKind.PARAMETERS and name in self._update_weights:
            return self._update_weights[name], self._update_weight_scale
        return None, 1.0

    def _mean_update_weight(self, name: str) -> float:
        weights = self._update_weights.get(name)
        if weights is None or not weights.numel():
            return 1.0
        return self._update_weight_scale * self._update_weight_norms[name] / math.sqrt(weights.numel())

    def _scale_to_mean_one(self) -> float:
        """Return the factor with which the root mean square of all update weights is one, as without weights."""
        norm = math.hypot(*self._update_weight_norms.values())
        count = sum(weights.numel() for weights in self._update_weights.values())
        return math.sqrt(count) / norm if norm > 0 and math.isfinite(norm) else 1.0


def _alike(kind: ResultKind, values: Mapping[str, Tensor | Detections]) -> Iterable[Mapping[str, Tensor | Detections]]:
    """Return the results of a kind in groups of similar magnitude: for optimizers by key, such as `exp_avg`."""
    if kind is not ResultKind.OPTIMIZER:
        return (values,)
    by_key: dict[str, dict[str, Tensor | Detections]] = {}
    for name, value in values.items():
        by_key.setdefault(name.rpartition(".")[2], {})[name] = value
    return by_key.values()


def _floor(kind: ResultKind, norm: float, usual_norm: float) -> float:
    floor = _FLOORS.get(kind, _DEFAULT_FLOOR)
    if norm < _ZERO * usual_norm:
        floor = _FLOORS_OF_ZEROS.get(kind, floor)
    return floor * usual_norm


def _by_name(values: Mapping[str, Any], names: list[str]) -> Mapping[str, Any]:
    """Return values by the reference's names. If a backend has other names, as many values are taken in their order."""
    if values.keys() != set(names) and len(values) == len(names):
        return dict(zip(names, values.values(), strict=True))
    return values


# Activations in the host's memory, for a step at fp64 that needs more memory than the device has.

#: Smaller tensors stay on the device: the time to move them outweighs the memory that they take.
SMALLEST_BYTES = 2**20

#: So much of the host's memory stays free for everything else.
LEFT_FREE_BYTES = 16 * 2**30


@contextlib.contextmanager
def activations_on_host() -> Iterator[None]:
    """Let autograd keep in the host's memory what the backward pass reads. The results do not change.

    `torch.autograd.graph.save_on_cpu` does so with every tensor, also parameters, until the host's memory is full: then
    the kernel ends the process. This function leaves some memory free. The step raises MemoryError if the host has too
    little memory, and RuntimeError if the step uses `torch.func`.
    """

    def keep(tensor: Tensor) -> tuple[torch.device, Tensor]:
        size = stored_bytes(tensor)
        if size < SMALLEST_BYTES or (tensor.is_leaf and tensor.requires_grad):
            return tensor.device, tensor.detach()
        if available_bytes() < size + LEFT_FREE_BYTES:
            raise MemoryError("the host has too little memory for what the backward pass reads")
        return tensor.device, tensor.detach().to("cpu", copy=True)

    def read(kept: tuple[torch.device, Tensor]) -> Tensor:
        device, tensor = kept
        return tensor.to(device)

    with torch.autograd.graph.saved_tensors_hooks(keep, read):
        yield


# Attention in pieces, so that the reference at fp64 needs no memory for all scores at once.

#: The most memory for the scores of a piece of more than one query.
PIECE_BYTES = 2**30


@contextlib.contextmanager
def attention_in_pieces(piece_bytes: int | None = None) -> Iterator[None]:
    """Let `scaled_dot_product_attention` compute large scores piece by piece, for some queries at a time.

    At fp64 PyTorch has no fused kernel, and writes the scores of all queries and keys, and keeps them for the backward
    pass. The result of a query depends on its own scores alone. So pieces give the same numbers, but for the order in
    which the gradients of keys and values are summed. The backward pass computes each piece again. With dropout,
    nothing is changed.

    Args:
        piece_bytes: the most bytes for the scores of a piece; by default PIECE_BYTES.
    """
    most = PIECE_BYTES if piece_bytes is None else piece_bytes
    own: Callable[..., Tensor] = F.scaled_dot_product_attention

    def in_pieces(
        query: Tensor,
        key: Tensor,
        value: Tensor,
        attn_mask: Tensor | None = None,
        dropout_p: float = 0.0,
        is_causal: bool = False,  # noqa: FBT001, FBT002  PyTorch's
        **options: Any,
    ) -> Tensor:
        a_row = query.shape[:-2].numel() * key.shape[-2] * query.itemsize
        rows = max(1, most // max(1, a_row))
        if dropout_p or rows >= query.shape[-2] or (is_causal and attn_mask is not None):
            return own(query, key, value, attn_mask, dropout_p, is_causal, **options)
        pieces = []
        for start in range(0, query.shape[-2], rows):
            compute = partial(_piece, own, slice(start, start + rows), is_causal=is_causal, **options)
            pieces.append(
                checkpoint(compute, query, key, value, attn_mask, use_reentrant=False, preserve_rng_state=False)
            )
        return torch.cat(pieces, dim=-2)

    F.scaled_dot_product_attention = in_pieces  # type: ignore[assignment]
    try:
        yield
    finally:
        F.scaled_dot_product_attention = own


def _piece(
    own: Callable[..., Tensor],
    rows: slice,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    mask: Tensor | None,
    *,
    is_causal: bool,
    **options: Any,
) -> Tensor:
    """Return the results of these queries. A causal mask begins at the upper left corner, as PyTorch's does."""
    piece = query[..., rows, :]
    if is_causal:
        places = torch.arange(rows.start, rows.start + piece.shape[-2], device=query.device)
        mask = torch.arange(key.shape[-2], device=query.device) <= places[:, None]
    elif mask is not None and mask.ndim > 1 and mask.shape[-2] > 1:
        mask = mask[..., rows, :]
    return own(piece, key, value, mask, **options)
