"""Prove that a model folder keeps the contract of `torchzoo.model.Model`. Importing this module imports torch.

Each `check_` function returns a line for each violation. An empty list is the proof.
"""

from __future__ import annotations

import fnmatch
import re
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor
from torch.utils._pytree import keystr, tree_flatten_with_path

from torchzoo.case import Mode
from torchzoo.devices import device_of
from torchzoo.errors import attempt, one_line
from torchzoo.model import Model
from torchzoo.model.tensors import is_finite, is_inexact, opened, same, stored_numbers, tensors_in
from torchzoo.zoo.catalog import NEEDS_DATA, load_model_class
from torchzoo.zoo.requirements import distribution_name
from torchzoo.zoo.spec import ModelSpec
from torchzoo.zoo.waiting import synchronising_operators

#: Training steps in which each trainable parameter must change. The first step may change few: a head, or the last
#: layer of a residual branch, often begins with zeros, and the layers before it have no gradient until it has changed.
FEW_STEPS = 4

NEVER_WAITS = "metadata.yaml's syncs says that a step waits for the device, but it does not"


def take_step(model: Model) -> Any:
    """Take one step in the model's mode, and return the loss or the outputs."""
    return model.measured_step()


def check_model(spec: ModelSpec, device: str = "", step: Callable[[Model], Any] = take_step) -> list[str]:
    """Build the model in each mode at its smoke batch size, take one step in each, and return the violations.

    Args:
        device: the device to build and step on; empty: the CPU, or the meta device if `spec.large`. Values, which the
            meta device lacks, are not checked on it. Whether two builds are equal is checked on the CPU.
        step: takes a model's step and returns its result, perhaps with more checks than this module's.
    """
    device = device or ("meta" if spec.large else "cpu")
    models = {mode: load_model_class(spec)(mode, device, spec.smoke_batch_size) for mode in spec.modes()}
    broken = check_folder(spec)
    for model in models.values():
        broken += check_build(model, spec)
    not_compared = without_equal(models) if device == "cpu" else {}
    for mode in reversed(spec.modes()):  # evaluation first: its network is gone when training takes its memory
        model = models.pop(mode)
        broken += check_seed(model, not_compared.pop(mode, {}))
        broken += check_batch(model, spec)
        broken += check_step(model, spec, step)
        del model
    small = load_model_class(spec).small() if device == "meta" else None
    if small is not None:  # of a step on the meta device only the shapes are known
        for mode in spec.modes():
            broken += [f"small, {what}" for what in check_step(small(mode, "cpu", spec.smoke_batch_size), spec)]
    return broken


def check_folder(spec: ModelSpec) -> list[str]:
    """Check that the docstring cites a source, the paper is a link, and the requirements have names."""
    docstring = sys.modules[load_model_class(spec).__module__].__doc__ or ""
    broken = [
        f"not the name of a distribution: {requirement}"
        for requirement in spec.requirements
        if not re.fullmatch(r"[a-z0-9-]+", distribution_name(requirement))
    ]
    if not re.search(r"\b(19|20)\d\d\b|https?://", docstring):
        broken.append("the docstring of __init__.py cites no source: it has neither a year nor a link")
    if not spec.paper.startswith("https://"):
        broken.append(f"paper is no link that starts with https://: {spec.paper}")
    return broken


def check_build(model: Model, spec: ModelSpec) -> list[str]:
    """Check that the build matches `metadata.yaml`, is in the right mode, and has its data on the device."""
    broken = []
    networks = model.networks()
    parameters = sum(parameter.numel() for network in networks.values() for parameter in network.parameters())
    if (model.mode is Mode.TRAIN or Mode.TRAIN not in spec.batch_size) and parameters != spec.parameters:
        broken.append(
            f"{parameters} parameters; metadata.yaml says {spec.parameters}: correct it, or the network if that is the "
            "published number"
        )
    broken += [
        f"network {name} is not in the mode {model.mode}"
        for name, network in networks.items()
        if network.training != (model.mode is Mode.TRAIN)
    ]
    resident = tensors_in(model.batch)
    if not resident:
        broken.append("model.batch is empty: a step's data belongs there")
    if any(tensor.device.type != model.device.type for tensor in resident):
        broken.append(f"model.batch is not on the device {model.device}")
    inputs = tensors_in(model.example_inputs)
    if not inputs:
        broken.append("example_inputs is empty")
    if not {id(tensor) for tensor in inputs} <= {id(tensor) for tensor in resident}:
        broken.append("example_inputs are not in model.batch")
    if model.samples_per_step <= 0:
        broken.append(f"samples_per_step is {model.samples_per_step}")
    if model.mode.generates:
        broken += _check_lengths(model, spec)
    return [f"{model.mode}: {what}" for what in broken]


def _check_lengths(model: Model, spec: ModelSpec) -> list[str]:
    """Check that the prompts and the cache have the lengths in `metadata.yaml`. A cache may have no length."""
    assert spec.tokens is not None
    broken = []
    tokens = model.batch_size * (spec.tokens.prompt if model.mode is Mode.PREFILL else 1)
    if model.samples_per_step != tokens:
        broken.append(f"a step reads {model.samples_per_step} tokens; metadata.yaml's tokens mean {tokens}")
    length = getattr(model, "cache_length", spec.tokens.cache)
    if length != spec.tokens.cache:
        broken.append(f"cache_length is {length}; metadata.yaml says {spec.tokens.cache}")
    return broken


def without_equal(models: dict[Mode, Model]) -> dict[Mode, dict[str, Tensor]]:
    """The tensors of each build without an equal tensor of the same name in the builds of other modes.

    Builds in two modes have the same seed, so a tensor that both have depends on nothing but the seed.
    """
    states = {mode: state(model) for mode, model in models.items()}
    return {
        mode: {
            name: tensor
            for name, tensor in own.items()
            if not any(same(tensor, states[other].get(name)) for other in states if other is not mode)
        }
        for mode, own in states.items()
    }


def check_seed(model: Model, values: dict[str, Tensor]) -> list[str]:
    """Check that a second build with the same seed has the same `values`, a part of `state(model)`.

    Without values, nothing is built.
    """
    if not values:
        return []
    second = state(type(model)(model.mode, model.device, model.batch_size, seed=model.seed))
    broken = [
        f"a second build gives other values for {name}: draw them from self.data, or with torch, whose seed is set"
        for name in values
        if not same(values[name], second.get(name))
    ]
    if list(second) != list(state(model)):
        broken.append("a second build has tensors of other names, or in another order")
    return [f"{model.mode}: {what}" for what in broken]


def check_batch(model: Model, spec: ModelSpec) -> list[str]:
    """Check that a step works on the requested batch size: twice the batch has twice the data."""
    broken = []
    if model.samples_per_step % spec.smoke_batch_size:
        broken.append(f"samples_per_step, {model.samples_per_step}, is no multiple of the batch size")
    twice = build_cheaply(spec, model.mode, 2 * spec.smoke_batch_size)
    elements, expected = element_count(twice.batch), 2 * element_count(model.batch)
    if elements != expected:
        broken.append(
            f"a batch of twice the size has {elements} elements, not {expected}: make the data by self.batch_size"
        )
    if twice.samples_per_step != 2 * model.samples_per_step:
        broken.append(f"a batch of twice the size has {twice.samples_per_step} samples per step")
    return [f"{model.mode}: {what}" for what in broken]


def check_step(model: Model, spec: ModelSpec, step: Callable[[Model], Any] = take_step) -> list[str]:
    """Check that a step has finite results and waits for the device only if `metadata.yaml` says why.

    A few train steps must change every trainable parameter, except those that `metadata.yaml` lists. Whether a model
    waits as its metadata says shows on the CPU by its operators, except of a large model, whose small version need not
    wait. On an accelerator copies count, too, and `check_waiting` looks at both.
    """
    if model.device.type == "meta":
        try:
            outputs = step(model)
        except NEEDS_DATA:
            if model.mode in spec.syncs:  # there is no value to wait for
                return []
            raise
        return [f"{model.mode}: {what}" for what in _check_outputs(model, outputs)]
    parameters = trainable_parameters(model) if model.mode is Mode.TRAIN else {}
    before = copied(parameters)
    with synchronising_operators(model.device) as seen:
        outputs = step(model)
    broken = _check_changes(model, spec, before)
    if seen and model.mode not in spec.syncs:
        broken.append(
            f"a step waits for the device by {', '.join(sorted(seen))}: avoid it or say why in metadata.yaml's syncs"
        )
    if not seen and model.mode in spec.syncs and model.device.type == "cpu" and not spec.large:
        broken.append(NEVER_WAITS)
    return [f"{model.mode}: {what}" for what in [*broken, *_check_outputs(model, outputs)]]


def _check_changes(model: Model, spec: ModelSpec, before: dict[str, Tensor]) -> list[str]:
    """Check that a few train steps change every trainable parameter. `before` has the values before the first step."""
    parameters = {
        name: parameter
        for name, parameter in trainable_parameters(model).items()
        if not any(fnmatch.fnmatch(name, pattern) for pattern in spec.unchanged_parameters)
    }
    for steps in range(1, FEW_STEPS + 1):
        same_names = [name for name in before if name in parameters and same(parameters[name], before[name])]
        if not same_names:
            return []
        if steps < FEW_STEPS:
            take_step(model)
    if len(same_names) == len(before) > 1:
        return [
            f"{FEW_STEPS} train steps change none of the {len(before)} trainable parameters: a step needs "
            "self.backward(loss) and self.step(optimizer)"
        ]
    return [
        f"{FEW_STEPS} train steps do not change {name}: let the loss depend on it, freeze it by requires_grad, or name "
        "it in metadata.yaml's unchanged_parameters with the reason"
        for name in same_names
    ]


def check_waiting(spec: ModelSpec, mode: Mode) -> list[str]:
    """Check that a warm step on the accelerator never waits and copies nothing between host and device.

    A step of a mode that `metadata.yaml` lists under `syncs` must do one of both.
    """
    accelerator = torch.accelerator.current_accelerator()
    assert accelerator is not None
    device = device_of(accelerator)
    model = load_model_class(spec)(mode, accelerator.type, spec.smoke_batch_size)
    for _ in range(3):
        take_step(model)
    device.synchronize()
    with device.waiting_forbidden() as is_watched:
        result = attempt(lambda: take_step(model))
    device.synchronize()
    activity = device.activity()
    if not is_watched or activity is None:
        return []
    waits = [f"a step waits for the device: {one_line(result)}"] if isinstance(result, Exception) else []
    with torch.profiler.profile(activities={torch.profiler.ProfilerActivity.CPU, activity}) as profile:
        take_step(model)
        device.synchronize()
    copies = {event.name for event in profile.events() if "Memcpy HtoD" in event.name or "Memcpy DtoH" in event.name}
    found = [*waits, *(f"a step has a {copy}" for copy in sorted(copies))]
    if mode in spec.syncs:
        return [] if found else [f"{mode}: {NEVER_WAITS}"]
    return [f"{mode}: {what}" for what in found]


def _check_outputs(model: Model, outputs: Any) -> list[str]:
    """Check that a train step returns its detached loss, and that inexact results are finite."""
    broken = []
    if model.mode is Mode.TRAIN and outputs.ndim != 0:
        broken.append(f"the loss has {outputs.ndim} dimensions: return one number, such as loss.mean()")
    if model.mode is Mode.TRAIN and outputs.requires_grad:
        broken.append("the loss is not detached: return loss.detach()")
    if not any(map(is_inexact, tensors_in(outputs))):
        broken.append("a step returns no tensor of floating-point or complex numbers")
    if model.device.type != "meta" and not is_finite(outputs):
        broken.append("a step returns numbers that are not finite")
    return broken


@contextmanager
def unchanged(values: dict[str, Tensor]) -> Iterator[list[str]]:
    """A list that gets the names of the tensors that the context has not changed, at its end."""
    before = copied(values)
    names: list[str] = []
    yield names
    names += [name for name, tensor in values.items() if same(tensor, before.pop(name))]


def copied(values: dict[str, Tensor]) -> dict[str, Tensor]:
    """Copies of the tensors."""
    return {name: tensor.detach().clone() for name, tensor in values.items()}


def build_cheaply(spec: ModelSpec, mode: Mode, batch_size: int) -> Model:
    """Build the model on the meta device, where tensors have no data, or on the CPU if the build needs data."""
    model_class = load_model_class(spec)
    try:
        return model_class(mode, "meta", batch_size)
    except NEEDS_DATA:
        return model_class(mode, "cpu", batch_size)


def trainable_parameters(model: Model) -> dict[str, Tensor]:
    """Trainable parameters of all networks by `network.parameter` name."""
    return {
        f"{network_name}.{name}": parameter
        for network_name, network in model.networks().items()
        for name, parameter in network.named_parameters()
        if parameter.requires_grad
    }


def state(model: Model) -> dict[str, Tensor]:
    """Weights and buffers of all networks and the tensors of the batch, by name. Quantized weights are left out."""
    weights = {
        f"{network_name}.{name}": value
        for network_name, network in model.networks().items()
        for name, value in network.state_dict().items()
        if isinstance(value, Tensor) and not value.is_quantized
    }
    batch = {
        f"batch{keystr(path)}": leaf
        for path, leaf in tree_flatten_with_path(opened(model.batch))[0]
        if isinstance(leaf, Tensor)
    }
    return weights | batch


def element_count(tree: Any) -> int:
    """The number of elements that the tensors in a nesting of containers store together."""
    return sum(stored_numbers(tensor).numel() for tensor in tensors_in(tree))
