"""Collect the results of a step on the host: outputs and caches, or loss, gradients and updates.

Complex tensors are kept as real tensors, with real and imaginary part as the last dimension, sparse tensors in COO
format, and nested tensors as their numbers and their lengths.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple, Protocol, runtime_checkable

import torch
from torch import Tensor, nn
from torch.optim.optimizer import register_optimizer_step_pre_hook
from torch.utils._pytree import keystr, tree_flatten_with_path

from torchzoo.backends.optimizer_copies import COUNTER
from torchzoo.case import ResultKind
from torchzoo.measure.check.matching import Detections, from_dict, from_rows, is_detections
from torchzoo.measure.check.norms import l2_norm
from torchzoo.measure.check.quantized import derived_buffers
from torchzoo.model import Model
from torchzoo.model.tensors import as_real, is_inexact, kind_of, opened, parts_of, same, stored_bytes, tensors_in

#: A larger tensor is kept sparse if fewer than one element in sixteen is not zero, as in gradients of embeddings.
_LARGE = 2**20


class CanNotCompare(Exception):
    """The results of a step can't be compared; the message says why."""


@dataclass(frozen=True, kw_only=True)
class Results:
    """The results of one step on the host, by kind and name.

    `update_weights` are the weights of a parameter's elements when an error of its update is measured: the magnitudes
    of the gradients that the optimizers were given. `resolution` is the least change of a parameter: the norm of the
    parameter times the relative distance between two numbers of its dtype.
    """

    values: dict[ResultKind, dict[str, Tensor | Detections]]
    update_weights: dict[str, Tensor] = field(default_factory=dict)
    resolution: dict[str, float] = field(default_factory=dict)


#: The results of consecutive steps.
Run = tuple[Results, ...]


@runtime_checkable
class HoldsCache(Protocol):
    """A module with a cache that steps write, whose tensors are no buffers."""

    def cache_tensors(self) -> dict[str, Tensor]:
        """Return all tensors of the cache, by name."""
        ...


def named_parameters(model: Model) -> Iterator[tuple[str, nn.Parameter]]:
    """Yield all floating and complex parameters of all networks by `network.parameter` name, shared ones once."""
    seen: set[int] = set()
    for network_name, network in model.networks().items():
        for name, parameter in network.named_parameters():
            if id(parameter) not in seen and is_inexact(parameter):
                seen.add(id(parameter))
                yield f"{network_name}.{name}", parameter


def collect_outputs(outputs: Any, *, rows: bool) -> dict[ResultKind, dict[str, Tensor | Detections]]:
    """Return the leaves of an evaluation's outputs by kind. With `rows`, tensors (..., N, 6) are detections.

    Raises:
        CanNotCompare: a leaf is neither a tensor nor a number.
    """
    found: dict[ResultKind, dict[str, Tensor | Detections]] = {}
    for path, leaf in tree_flatten_with_path(opened(outputs, is_leaf=is_detections), is_leaf=is_detections)[0]:
        name = f"output{keystr(path)}"
        if is_detections(leaf):
            found.setdefault(ResultKind.DETECTIONS, {})[name] = from_dict(leaf)
        elif rows and isinstance(leaf, Tensor) and leaf.ndim >= 2:
            for index, image in enumerate(leaf.unbind(0) if leaf.ndim == 3 else [leaf]):
                found.setdefault(ResultKind.DETECTIONS, {})[f"{name}[{index}]"] = from_rows(image)
        elif leaf is not None:
            for part, tensor in _as_tensors(leaf, name):
                kind = ResultKind.OUTPUTS if tensor.is_floating_point() else ResultKind.INTEGERS
                found.setdefault(kind, {})[part] = tensor.to("cpu", copy=True)
    return found


def _as_tensors(leaf: Any, name: str) -> Iterator[tuple[str, Tensor]]:
    """Yield the real tensors of an output by name: for a nested tensor its numbers, and its offsets or lengths."""
    if isinstance(leaf, bool | int | float | complex):
        leaf = torch.tensor(leaf)
    if not isinstance(leaf, Tensor):
        raise CanNotCompare(f"{name} is a {type(leaf).__name__}")
    tensor = leaf.detach()
    if tensor.is_quantized:
        tensor = tensor.dequantize()
    if tensor.is_nested:
        numbers, lengths = parts_of(tensor)
        yield from ((name, as_real(numbers)), (f"{name}.lengths", lengths))
    elif kind_of(tensor).startswith("sparse") and not is_inexact(tensor):
        yield name, tensor.to_dense()
    else:
        yield name, as_real(tensor)


def state_of(model: Model) -> Iterator[tuple[str, Tensor]]:
    """Yield buffers, and the tensors of caches that are no buffers, by `network.name`; complex tensors as real ones."""
    for network_name, network in model.networks().items():
        derived = derived_buffers(network)
        for name, buffer in network.named_buffers():
            if name not in derived:
                yield f"{network_name}.{name}", as_real(buffer)
        for path, module in network.named_modules():
            if isinstance(module, HoldsCache):
                for name, tensor in module.cache_tensors().items():
                    yield ".".join(filter(None, (network_name, path, name))), as_real(tensor)


def state_before(model: Model) -> dict[str, Tensor]:
    """Return the floating tensors of `state_of`, copied to the host before the model steps."""
    return {name: tensor.to("cpu", copy=True) for name, tensor in state_of(model) if tensor.is_floating_point()}


def collect_evaluation(
    model: Model, outputs: Any, before: dict[str, Tensor] | None, *, rows: bool
) -> dict[ResultKind, dict[str, Tensor | Detections]]:
    """Return the results of a step that does not train: its outputs, and its changes of buffers and caches.

    Args:
        model: after the step.
        outputs: the return value of the step.
        before: the result of `state_before`. None: only outputs are compared.
        rows: tensors (..., N, 6) are detections.

    Raises:
        CanNotCompare: an output is neither a tensor nor a number, or there is none.
    """
    values = collect_outputs(outputs, rows=rows)
    if not values:
        raise CanNotCompare("the step returns nothing")
    if before is None:
        return values
    for name, tensor in state_of(model):
        if not tensor.is_floating_point():
            values.setdefault(ResultKind.INTEGERS, {})[name] = tensor.to("cpu", copy=True)
        else:
            new = tensor.detach().to(torch.promote_types(tensor.dtype, torch.float32))
            old = before.get(name)  # None: the step made this buffer
            change = new if old is None else new - old.to(tensor.device)
            values.setdefault(ResultKind.STATE, {})[name] = on_host(change, is_new=old is not None)
    return values


class Before(NamedTuple):
    """A parameter before the step: its values, on the host, and their norm."""

    values: Tensor
    norm: float


def parameters_before(model: Model) -> dict[str, Before]:
    """Return all parameters by name, copied to the host before the model steps."""
    found = ((name, as_real(parameter.detach())) for name, parameter in named_parameters(model))
    return {name: Before(values.to("cpu", copy=True), l2_norm(values)) for name, values in found}


def collect_loss(loss: Tensor) -> Results:
    """Return the loss of a training step as results."""
    return Results(values={ResultKind.LOSS: {"loss": loss.detach().to("cpu", copy=True)}})


def collect_training(
    model: Model,
    loss: Tensor,
    before: dict[str, Before] | None,
    gradient_magnitudes: dict[int, Tensor],
    widest: torch.dtype = torch.float64,
    optimizer_states: Iterable[Mapping[Tensor, Mapping[str, Any]]] = (),
) -> Results:
    """Return the results of training steps.

    Args:
        model: after the step.
        loss: the return value of the last step.
        before: the result of `parameters_before`; each is removed once its update is known. None: no updates.
        gradient_magnitudes: of the gradients that the optimizers were given, by the parameter's id.
        widest: gradients and updates in wider dtypes are kept in this dtype.
        optimizer_states: the state of each parameter in the optimizers, if it is compared.
    """
    values: dict[ResultKind, dict[str, Any]] = dict(collect_loss(loss).values)
    gradients: dict[str, Tensor] = {}
    updates: dict[str, Tensor] = {}
    resolution: dict[str, float] = {}
    for name, parameter in named_parameters(model):
        if parameter.grad is not None:
            gradients[name] = on_host(narrowed(as_real(parameter.grad), widest))
        if before is None:
            continue
        old = before.pop(name)
        dtype = old.values.dtype
        resolution[name] = torch.finfo(dtype).eps * old.norm
        wide = torch.promote_types(dtype, torch.float32)
        update = as_real(parameter.detach()).to(wide) - old.values.to(parameter.device)
        updates[name] = on_host(narrowed(update, widest), is_new=True)
    values |= {ResultKind.GRADIENTS: gradients} if gradients else {}
    values |= {ResultKind.PARAMETERS: updates} if updates else {}
    for name, buffer in state_of(model):
        kind = ResultKind.BUFFERS if buffer.is_floating_point() else ResultKind.INTEGERS
        values.setdefault(kind, {})[name] = buffer.detach().to("cpu", copy=True)
    names = {id(parameter): name for name, parameter in named_parameters(model)}
    for kind, name, tensor in _of_optimizers(optimizer_states, names):
        values.setdefault(kind, {})[name] = on_host(narrowed(as_real(tensor), widest))
    update_weights = {names[key]: magnitude for key, magnitude in gradient_magnitudes.items() if key in names}
    return Results(values=values, update_weights=update_weights if before is not None else {}, resolution=resolution)


def sharing_equal(results: Results, earlier: Results) -> Results:
    """Return the results with tensors that equal those of an earlier step replaced by these, to save memory."""
    values = {}
    for kind, named in results.values.items():
        others = earlier.values.get(kind, {})
        values[kind] = {n: others[n] if _are_equal(value, others.get(n)) else value for n, value in named.items()}
    return replace(results, values=values)


def run_bytes(run: Run) -> int:
    """Return the bytes of a run's results in the host's memory; a tensor that several steps share counts once."""
    tensors = {id(one): one for results in run for one in tensors_in(list(results.values.values()))}
    return sum(map(stored_bytes, tensors.values()))


def _are_equal(value: Any, other: Any) -> bool:
    return isinstance(value, Tensor) and isinstance(other, Tensor) and same(value, other)


@contextlib.contextmanager
def gradients_given_to_optimizers(widest: torch.dtype) -> Iterator[dict[int, Tensor]]:
    """Collect the sums of the magnitudes of all gradients that optimizers step by, on the host, by the parameter's id.

    The dtype of the sums is no wider than `widest`.
    """
    found: dict[int, Tensor] = {}

    def keep(optimizer: torch.optim.Optimizer, *_: Any) -> None:
        for group in optimizer.param_groups:
            for parameter in group["params"]:
                if parameter.grad is not None:
                    gradient = parameter.grad.coalesce() if parameter.grad.is_sparse else parameter.grad
                    magnitude = on_host(narrowed(as_real(gradient).abs(), widest), is_new=True)
                    found[id(parameter)] = found[id(parameter)] + magnitude if id(parameter) in found else magnitude

    handle = register_optimizer_step_pre_hook(keep)
    try:
        yield found
    finally:
        handle.remove()


def _of_optimizers(
    states: Iterable[Mapping[Tensor, Mapping[str, Any]]], names: Mapping[int, str]
) -> Iterator[tuple[ResultKind, str, Tensor]]:
    """Yield the tensors of optimizers by `parameter.key`. Counters count as integers, whatever their dtype."""
    for state in states:
        for parameter, kept in state.items():
            for key, value in kept.items():
                if isinstance(value, Tensor) and id(parameter) in names:
                    is_number = key != COUNTER and is_inexact(value)
                    kind = ResultKind.OPTIMIZER if is_number else ResultKind.INTEGERS
                    yield kind, f"{names[id(parameter)]}.{key}", value


def narrowed(tensor: Tensor, widest: torch.dtype) -> Tensor:
    """Return the tensor in a dtype that is no wider than this dtype."""
    return tensor.to(widest) if tensor.dtype.itemsize > widest.itemsize else tensor


def on_host(tensor: Tensor, *, is_new: bool = False) -> Tensor:
    """Return a copy on the host, in sparse format by rows, as for gradients of embeddings, where that saves memory.

    With `is_new`, nobody else has the tensor: if it is on the host, no copy is made.
    """
    tensor = tensor.detach()
    if tensor.is_sparse:
        by_rows = tensor if tensor.sparse_dim() == 1 else tensor.to_dense().to_sparse(1)
        return by_rows.coalesce().to("cpu", copy=True)
    is_sparse = tensor.numel() > _LARGE and int(tensor.count_nonzero()) < tensor.numel() // 16
    return tensor.to_sparse(1).to("cpu") if is_sparse else tensor.to("cpu", copy=not is_new)
