"""The two ways to run a model's step: in eager, or with what the case's backend makes of it (the candidate)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from importlib import import_module
from typing import Any

import torch
from torch import nn

from torchzoo import backends
from torchzoo.backends.call import Call
from torchzoo.case import Backend, Case, CompileScope, Mode
from torchzoo.measure.precision import LabelNotReached
from torchzoo.model import Model
from torchzoo.record import CANDIDATE_VARIANT, EAGER_VARIANT


@dataclass(frozen=True, kw_only=True)
class Variant:
    """One way to run a model's step. `select` makes the model use this way; it is never called in the timed region."""

    name: str
    step: Callable[[], Any]
    select: Callable[[], None]


def eager_variant(model: Model, step: Callable[[], Any]) -> Variant:
    """The step with every network running its own code."""
    return Variant(name=EAGER_VARIANT, step=step, select=lambda: _install(model, {}))


def candidate_variant(model: Model, step: Callable[[], Any], case: Case, calls: dict[str, Call]) -> Variant:
    """The same step on the same weights, with the networks (or the whole step) compiled by the case's backend.

    `calls` has, by network name, the first call of each network that the step calls. They are not kept. A backend that
    changes the step compiles nothing.

    Raises:
        LabelNotReached: the step calls no network, or the backend made its own copy of trainable weights.
        NotRunnable: the model has nothing that the backend would change.
    """
    info = backends.info(case.backend.name)
    assert info.module is not None, "eager has no candidate"
    module = import_module(f"torchzoo.backends.{info.module}")
    if info.changes_step:
        changed = module.changed_step(model, step, case.backend)
        return Variant(name=CANDIDATE_VARIANT, step=changed, select=lambda: _install(model, {}))
    if case.compile_scope is CompileScope.STEP:
        return Variant(
            name=CANDIDATE_VARIANT, step=module.compile_step(step, case.backend), select=lambda: _install(model, {})
        )
    networks = model.networks()
    if not calls:
        raise LabelNotReached("the step calls none of its networks, so that there is nothing to compile")
    compiled = {name: _compile(module, networks[name], call, case.backend, model.mode) for name, call in calls.items()}
    return Variant(name=CANDIDATE_VARIANT, step=step, select=lambda: _install(model, compiled))


def _compile(module: Any, network: nn.Module, call: Call, backend: Backend, mode: Mode) -> Callable[..., Any]:
    with torch.set_grad_enabled(mode is Mode.TRAIN):
        compiled: Callable[..., Any] = module.compile_network(network, call, backend)
    if mode is Mode.TRAIN and isinstance(compiled, nn.Module):
        own = {parameter.data_ptr() for parameter in network.parameters()}
        if not {parameter.data_ptr() for parameter in compiled.parameters()} <= own:
            raise LabelNotReached(f"{backend} made a copy of the weights: training it would not train the model")
    return partial(compiled)  # a function, even where it is a module: a module's attribute would become its child


def _install(model: Model, compiled: dict[str, Callable[..., Any]]) -> None:
    """Make each network run its compiled form, or its own code where it has none.

    `nn.Module.compile()` puts its result in the same place, so all references to the network keep working.
    """
    for name, network in model.networks().items():
        network._compiled_call_impl = compiled.get(name)
