"""A reference, and how far other results are from it: the errors that the check judges.

An error is a norm: ||x - reference|| / max(||reference||, floor) for each tensor. (`torch._dynamo.utils.same` compares
root mean squares in the same way.) The floor is a small part of the norm that a tensor of that size has on average
among its kind. So noise in a gradient that should be zero does not count as an error.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from typing import Any

import torch
from torch import Tensor

from torchzoo.case import ResultKind
from torchzoo.measure.check.matching import Detections, unmatched_share
from torchzoo.measure.check.results import Results

#: A norm counts as at least this part of what is usual for a tensor of that size.
_FLOORS = {ResultKind.GRADIENTS: 1e-3, ResultKind.PARAMETERS: 1e-3, ResultKind.BUFFERS: 1e-3}
_DEFAULT_FLOOR = 1e-6


class Reference:
    """The results that others are compared with, and the scale of each tensor. Errors are in units of that scale.

    They are the results at fp64, or, where there are none, those of eager.
    """

    def __init__(self, results: Results) -> None:
        self.results = results
        self._update_weights = results.update_weights
        self._update_weight_scale = _scale_to_mean_one(results.update_weights.values())
        self._scales = {kind: self._scales_of(kind, values) for kind, values in results.values.items()}

    def errors(self, kind: ResultKind, found: Results, expected: Results | None = None) -> dict[str, float]:
        """The distance of each result of one kind from the expected one (by default from the reference's own).

        It is in units of the reference's norm. It is infinite where a result is missing, has another shape, or is not
        finite in another way than the expected one.
        """
        names = list(self.results.values[kind])
        ours = _by_name(found.values.get(kind, {}), names)
        theirs = _by_name((expected or self.results).values.get(kind, {}), names)
        return {name: self._error(kind, name, ours.get(name), theirs.get(name)) for name in names}

    def resolution(self, kind: ResultKind, found: Results) -> dict[str, float]:
        """The part of an update's error that the dtype of the stored parameter causes, in the same units."""
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
        distance = self._norm(kind, name, _difference(ours, theirs))
        if distance == 0:
            return 0.0
        scale = self._scales[kind][name]
        return distance / scale if scale > 0 and math.isfinite(distance) else math.inf

    def _scales_of(self, kind: ResultKind, values: Mapping[str, Tensor | Detections]) -> dict[str, float]:
        norms = {
            name: self._norm(kind, name, _finite_part(value))
            for name, value in values.items()
            if isinstance(value, Tensor) and kind is not ResultKind.INTEGERS
        }
        sizes = {name: values[name].numel() for name in norms}  # type: ignore[union-attr]
        usual = math.sqrt(sum(norm**2 for norm in norms.values()) / max(1, sum(sizes.values())))
        floor = _FLOORS.get(kind, _DEFAULT_FLOOR) * usual
        return {name: max(norm, floor * math.sqrt(sizes[name])) for name, norm in norms.items()}

    def _norm(self, kind: ResultKind, name: str, values: Tensor) -> float:
        """The norm of a tensor. In an update, each element is weighted by the magnitude of its gradient.

        Adam's first steps depend on the sign of the gradient alone, so noise in a gradient near zero reverses an
        update. With these weights, the relative error of an update is at most about twice that of its gradient. They
        also say how much the loss would notice the error.
        """
        if kind is ResultKind.PARAMETERS and name in self._update_weights:
            values = self._update_weight_scale * _product(values, self._update_weights[name])
        return l2_norm(values)

    def _mean_update_weight(self, name: str) -> float:
        weights = self._update_weights.get(name)
        if weights is None or not weights.numel():
            return 1.0
        return self._update_weight_scale * l2_norm(weights) / math.sqrt(weights.numel())


def l2_norm(values: Tensor) -> float:
    """The norm over all elements, in fp64."""
    return float(
        torch.linalg.vector_norm(values.coalesce().values() if values.is_sparse else values, dtype=torch.float64)
    )


def _difference(a: Tensor, b: Tensor) -> Tensor:
    """a - b in fp64; zero where both are the same infinity or both are NaN."""
    if a.is_sparse and b.is_sparse:
        return a.double() - b.double()
    a, b = (t.to_dense().double() for t in (a, b))
    same = (a == b) | (a.isnan() & b.isnan())
    return torch.where(same, 0.0, a - b)


def _finite_part(values: Tensor) -> Tensor:
    return values.double() if values.is_sparse else values.double().nan_to_num(0.0, 0.0, 0.0)


def _product(values: Tensor, weights: Tensor) -> Tensor:
    return values.to_dense() * weights.to_dense() if values.is_sparse != weights.is_sparse else values * weights


def _scale_to_mean_one(weights: Iterable[Tensor]) -> float:
    """The factor that makes the root mean square over all weights one: tensors without weights have weight one, too."""
    weights = list(weights)
    norm = math.hypot(*map(l2_norm, weights))
    count = sum(tensor.numel() for tensor in weights)
    return math.sqrt(count) / norm if norm > 0 and math.isfinite(norm) else 1.0


def _by_name(values: Mapping[str, Any], names: list[str]) -> Mapping[str, Any]:
    """Values by the reference's names. A backend may use other names: as many values are then taken in their order."""
    if values.keys() != set(names) and len(values) == len(names):
        return dict(zip(names, values.values(), strict=True))
    return values
