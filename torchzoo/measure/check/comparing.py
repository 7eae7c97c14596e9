"""Results of one step compared with those of another run of it: relative errors, and what they may be.

Errors are norms: ||x - reference|| / max(||reference||, floor) of each tensor, as `torch._dynamo.utils.same` compares
root mean squares. The floor is a small part of what a tensor of that size has in the mean of its kind, so that noise in
a gradient that should be zero is not taken for an error. A tensor is close to the reference if its error is within the
precision's tolerance, or within a small multiple of what eager makes itself: rounding is amplified by what is computed
(batch normalisation of two images), not by who computes it. Where even that is far from the reference, only a result
close to eager's says anything; else the tensor is not judged.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from statistics import median
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.utils._pytree import keystr, tree_flatten_with_path

from torchzoo.case import Precision
from torchzoo.measure.check.matching import Detections, from_dict, from_rows, is_detections, unmatched_share
from torchzoo.record import Comparison, ResultKind


class Tolerances(NamedTuple):
    """What an error may be at a precision, whatever eager's own is."""

    forward: float  # of losses, outputs and buffers, relative
    backward: float  # of gradients and what they add to parameters, relative
    unequal: float  # share of integers that may differ
    unmatched: float  # share of detections that may lack a partner


#: By the coarsest arithmetic of a case; exceptions are in metadata.yaml.
TOLERANCES = {
    Precision.FP64: Tolerances(forward=1e-9, backward=1e-7, unequal=0.0, unmatched=0.01),
    Precision.FP32: Tolerances(forward=1e-4, backward=1e-3, unequal=0.0, unmatched=0.03),
    Precision.TF32: Tolerances(forward=5e-3, backward=2e-2, unequal=0.01, unmatched=0.1),
    Precision.FP16: Tolerances(forward=1e-2, backward=5e-2, unequal=0.02, unmatched=0.1),
    Precision.BF16: Tolerances(forward=5e-2, backward=1e-1, unequal=0.05, unmatched=0.2),
}
#: Relative changes of weights that stand for rounding at each arithmetic: one unit in the last place where sums are
#: kept in fp32; sixteen where sums of thousands are rounded as their terms are. (Eager's batch normalisation on the CPU
#: sums in fp64, inductor's in fp32: of resnet18 its statistics are 1e-7 and 2e-6 off, so eager's own is no measure.)
ROUNDING = {
    Precision.FP64: 16 * 2.0**-52,
    Precision.FP32: 16 * 2.0**-23,
    Precision.TF32: 2.0**-10,
    Precision.FP16: 2.0**-10,
    Precision.BF16: 2.0**-7,
}
#: An error may be as many times as large as eager's own.
MULTIPLE = 3.0
#: Where more than this would have to be allowed, the reference says nothing: a third of a result may not be wrong.
MOST_ALLOWED = 0.3
#: Norms below this part of what is usual for a tensor of that size count as that part.
FLOORS = {ResultKind.GRADIENTS: 1e-3, ResultKind.PARAMETERS: 1e-3, ResultKind.BUFFERS: 1e-3}
DEFAULT_FLOOR = 1e-6

_FORWARD = (ResultKind.LOSS, ResultKind.OUTPUTS, ResultKind.BUFFERS)


#: Larger tensors with fewer than one element in sixteen that is not zero are kept sparse: gradients of embeddings.
LARGE = 2**20


class CanNotCompare(Exception):
    """A step returned something that nothing is known about."""


@dataclass(frozen=True, kw_only=True)
class Results:
    """What one run of a step left behind, on the host, by kind and name.

    `weights` are magnitudes of the gradients that the optimizers were given, by parameter; `resolution` is the norm of
    a parameter tensor times the distance between two numbers of its dtype: what an update can't be finer than.
    """

    values: dict[ResultKind, dict[str, Tensor | Detections]]
    weights: dict[str, Tensor] = field(default_factory=dict)
    resolution: dict[str, float] = field(default_factory=dict)


def collect_outputs(outputs: Any, *, rows: bool) -> dict[ResultKind, dict[str, Tensor | Detections]]:
    """The leaves of an evaluation's outputs, sorted by kind; with `rows`, tensors (..., N, 6) are detections.

    Raises:
        CanNotCompare: a leaf that is neither tensor nor number.
    """
    found: dict[ResultKind, dict[str, Tensor | Detections]] = {}
    for path, leaf in tree_flatten_with_path(outputs, is_leaf=is_detections)[0]:
        name = f"output{keystr(path)}"
        if is_detections(leaf):
            found.setdefault(ResultKind.DETECTIONS, {})[name] = from_dict(leaf)
        elif rows and isinstance(leaf, Tensor) and leaf.ndim >= 2:
            for index, image in enumerate(leaf.unbind(0) if leaf.ndim == 3 else [leaf]):
                found.setdefault(ResultKind.DETECTIONS, {})[f"{name}[{index}]"] = from_rows(image)
        elif leaf is not None:
            kind, tensor = _as_tensor(leaf, name)
            found.setdefault(kind, {})[name] = tensor
    return found


def _as_tensor(leaf: Any, name: str) -> tuple[ResultKind, Tensor]:
    if isinstance(leaf, bool | int | float):
        leaf = torch.tensor(leaf)
    if not isinstance(leaf, Tensor):
        raise CanNotCompare(f"{name} is a {type(leaf).__name__}")
    tensor = leaf.detach()
    if tensor.is_quantized:
        tensor = tensor.dequantize()
    if tensor.is_complex():
        tensor = torch.view_as_real(tensor)
    kind = ResultKind.OUTPUTS if tensor.is_floating_point() else ResultKind.INTEGERS
    return kind, tensor.to("cpu", copy=True)


def on_host(tensor: Tensor) -> Tensor:
    """A copy; sparse where that saves memory, by rows then, as embeddings make their gradients."""
    tensor = tensor.detach()
    if tensor.is_sparse:
        by_rows = tensor if tensor.sparse_dim() == 1 else tensor.to_dense().to_sparse(1)
        return by_rows.coalesce().to("cpu", copy=True)
    is_sparse = tensor.numel() > LARGE and int(tensor.count_nonzero()) < tensor.numel() // 16
    return tensor.to_sparse(1).to("cpu") if is_sparse else tensor.to("cpu", copy=True)


def tolerance_of(kind: ResultKind, precision: Precision) -> float:
    """The precision's: one of TOLERANCES' keys."""
    tolerances = TOLERANCES[precision]
    if kind is ResultKind.INTEGERS:
        return tolerances.unequal
    if kind is ResultKind.DETECTIONS:
        return tolerances.unmatched
    return tolerances.forward if kind in _FORWARD else tolerances.backward


class Reference:
    """A reference, and the scale of each of its tensors: measures how far other results are from each other."""

    def __init__(self, reference: Results) -> None:
        self.reference = reference
        self._weights = reference.weights
        self._weight_scale = _scale_to_mean_one(reference.weights.values())
        self._scales = {kind: self._scales_of(kind, values) for kind, values in reference.values.items()}

    def errors(self, kind: ResultKind, found: Results, expected: Results | None = None) -> dict[str, float]:
        """The distance of each result of a kind from the expected one, in units of the reference's norm.

        Infinite where a result is missing, has another shape, or is not finite in another way.
        """
        names = list(self.reference.values[kind])
        ours = _named(found.values.get(kind, {}), names)
        theirs = _named((expected or self.reference).values.get(kind, {}), names)
        return {name: self._error(kind, name, ours.get(name), theirs.get(name)) for name in names}

    def resolution(self, kind: ResultKind, found: Results) -> dict[str, float]:
        """What the dtype of stored parameters adds to the error of an update, in the same units."""
        if kind is not ResultKind.PARAMETERS:
            return {}
        scales = self._scales[kind]
        return {
            name: found.resolution[name] * self._mean_weight(name) / scale if scale else 0.0
            for name, scale in scales.items()
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
        floor = FLOORS.get(kind, DEFAULT_FLOOR) * usual
        return {name: max(norm, floor * math.sqrt(sizes[name])) for name, norm in norms.items()}

    def _norm(self, kind: ResultKind, name: str, values: Tensor) -> float:
        """Of an update, each element weighs as much as its gradient.

        Adam's first steps are of the gradient's sign: noise in a gradient near zero turns an update round. Weighed so,
        an update's error is at most about twice its gradient's, relative to both; and it is what the loss would notice.
        """
        if kind is ResultKind.PARAMETERS and name in self._weights:
            values = self._weight_scale * _product(values, self._weights[name])
        return l2_norm(values)

    def _mean_weight(self, name: str) -> float:
        weights = self._weights.get(name)
        if weights is None or not weights.numel():
            return 1.0
        return self._weight_scale * l2_norm(weights) / math.sqrt(weights.numel())


def _difference(a: Tensor, b: Tensor) -> Tensor:
    """a - b in fp64; zero where both are the same infinity or both NaN."""
    if a.is_sparse and b.is_sparse:
        return a.double() - b.double()
    a, b = (t.to_dense().double() for t in (a, b))
    same = (a == b) | (a.isnan() & b.isnan())
    return torch.where(same, 0.0, a - b)


def _finite_part(values: Tensor) -> Tensor:
    return values.double() if values.is_sparse else values.double().nan_to_num(0.0, 0.0, 0.0)


def _product(values: Tensor, weights: Tensor) -> Tensor:
    return values.to_dense() * weights.to_dense() if values.is_sparse != weights.is_sparse else values * weights


def l2_norm(values: Tensor) -> float:
    """Of all elements, in fp64."""
    return float(
        torch.linalg.vector_norm(values.coalesce().values() if values.is_sparse else values, dtype=torch.float64)
    )


def _scale_to_mean_one(weights: Iterable[Tensor]) -> float:
    """What makes the root mean square over all weights one, so that they compare with tensors that have none."""
    weights = list(weights)
    norm = math.hypot(*map(l2_norm, weights))
    count = sum(tensor.numel() for tensor in weights)
    return math.sqrt(count) / norm if norm > 0 and math.isfinite(norm) else 1.0


def _named(values: Mapping[str, Any], names: list[str]) -> Mapping[str, Any]:
    """Values by the reference's names; by order where a backend gives as many under other names."""
    if values.keys() != set(names) and len(values) == len(names):
        return dict(zip(names, values.values(), strict=True))
    return values


class Judged(NamedTuple):
    """A comparison, and what the error of each tensor was allowed to be."""

    comparison: Comparison
    allowed: dict[str, float]


def compare(
    kind: ResultKind,
    yardstick: Reference,
    found: Results,
    *,
    tolerance: float,
    beside: Results | None = None,
    eager: Results | None = None,
    sensitivity: Iterable[Results] = (),
    at_least: Mapping[str, float] | None = None,
) -> Judged:
    """One kind of result judged, tensor by tensor; what is said is of the tensor that stands worst.

    Args:
        found: what is judged.
        tolerance: what an error may be at least.
        beside: the results whose own errors, times MULTIPLE, the errors may also be.
        eager: results that `found` should equal but for rounding: close to them, a tensor is as good as eager.
        sensitivity: runs of eager (with `eager`, else of what is judged) whose weights were changed as by rounding: how
            far they are from it counts as its own error too.
        at_least: errors that are allowed in any case, by tensor.
    """
    errors = yardstick.errors(kind, found)
    own = yardstick.errors(kind, beside) if beside is not None else dict.fromkeys(errors, 0.0)
    direct = yardstick.errors(kind, found, eager) if eager is not None else dict.fromkeys(errors, math.inf)
    shaken = [yardstick.errors(kind, run, eager or found) for run in sensitivity]
    resolution = yardstick.resolution(kind, found)
    usual = median(own.values())  # a tensor's own error may be small by chance
    verdicts: dict[str, tuple[int, float]] = {}
    allowed: dict[str, float] = {}
    for name, error in errors.items():
        rounding = max([own[name], usual, *(run[name] for run in shaken)])
        limits = (tolerance, MULTIPLE * rounding, (at_least or {}).get(name, 0.0))
        allowed[name] = max(limits) + resolution.get(name, 0.0)
        verdicts[name] = _verdict(error, direct[name], allowed[name], tolerance)
    worst = max(verdicts, key=lambda name: verdicts[name])
    not_judged = sum(severity == _NOT_JUDGED for severity, _ in verdicts.values())
    comparison = Comparison(
        what=kind,
        worst=worst,
        error=_finite(errors[worst]),
        eager_error=_finite(own[worst]) if beside is not None else None,
        tolerance=tolerance,
        allowed=_finite(allowed[worst]),
        is_close=False if verdicts[worst][0] == _OFF else None if 2 * not_judged > len(errors) else True,
        tensors=len(errors),
        tensors_not_judged=not_judged,
    )
    return Judged(comparison, allowed)


_CLOSE, _NOT_JUDGED, _OFF = range(3)


def _verdict(error: float, direct: float, allowed: float, tolerance: float) -> tuple[int, float]:
    """How bad, and how far from what is allowed."""
    if direct <= tolerance or error <= min(allowed, max(MOST_ALLOWED, tolerance)):
        return _CLOSE, error / allowed if allowed and math.isfinite(error) else 0.0
    if allowed > MOST_ALLOWED and (math.isfinite(error) or not math.isfinite(allowed)):
        return _NOT_JUDGED, error
    return _OFF, error / allowed if allowed and math.isfinite(allowed) else math.inf


def _finite(value: float) -> float | None:
    return value if math.isfinite(value) else None
