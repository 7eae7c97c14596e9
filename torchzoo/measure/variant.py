"""The two ways to run a model's step: in eager, or compiled or converted by the case's backend (the candidate)."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import nn
from torch.distributions import Distribution

from torchzoo import backends
from torchzoo.backends import NotRunnable
from torchzoo.backends.aoti import PackagedNetwork
from torchzoo.backends.call import Call
from torchzoo.backends.optimizer_copies import StepWithCopies, copy_of, optimizers_of
from torchzoo.case import Backend, Case, CompileScope, Mode
from torchzoo.measure.blocks import blocks
from torchzoo.measure.precision import LabelNotReached
from torchzoo.model import Model
from torchzoo.record import CANDIDATE_VARIANT, EAGER_VARIANT


@dataclass(frozen=True, kw_only=True)
class Variant:
    """A way to run a model's step. `select` makes the model use it, and is never called in the timed region."""

    name: str
    step: Callable[[], Any]
    select: Callable[[], None]
    packages: tuple[PackagedNetwork, ...] = ()  # of networks that were compiled ahead of time
    modules: tuple[nn.Module, ...] = ()  # compiled, as the case's label says; empty: the whole step, or nothing


def eager_variant(model: Model, step: Callable[[], Any]) -> Variant:
    """Return the step in which every network runs its own code."""
    return Variant(name=EAGER_VARIANT, step=step, select=_selecting(model, {}))


def candidate_variant(model: Model, step: Callable[[], Any], case: Case, calls: Mapping[str, Call | None]) -> Variant:
    """Return the same step on the same weights, with the case's compile scope compiled by the case's backend.

    `calls` has, by network name, the first call of each network that the step calls. The calls are not kept. Dynamo
    needs none of them (None). A backend of a userbenchmark changes the step, and compiles nothing.

    Raises:
        LabelNotReached: the step calls no network, or the backend made its own copy of trainable weights.
        NotRunnable: the model has nothing that the backend would change; or the blocks are to be compiled, and the
            networks have no repeated blocks; or the backend compiles for the inputs of one call, and the step has
            calls with others.
    """
    info, module = backends.info(case.backend.name), backends.module_of(case.backend.name)
    if info.userbenchmark is not None:
        changed = module.changed_step(model, step, case.backend)
        return Variant(name=CANDIDATE_VARIANT, step=changed, select=_selecting(model, {}))
    if case.compile_scope is CompileScope.STEP:
        copies = [(optimizer, copy_of(optimizer)) for optimizer in optimizers_of(model)]
        compiled_step = StepWithCopies(module.compile_step(step, case.backend), copies)
        return Variant(name=CANDIDATE_VARIANT, step=compiled_step, select=_selecting(model, {}))
    networks = model.networks()
    if not calls:
        raise LabelNotReached("the step calls none of its networks, so that there is nothing to compile")
    if case.compile_scope is CompileScope.BLOCK:
        repeated = [block for name in calls for block in blocks(networks[name])]
        if not repeated:
            raise NotRunnable("its networks have no repeated blocks, which are what is compiled with this scope")
        by_block = {block: module.compile_block(block, case.backend, case.parallel) for block in repeated}
        return Variant(name=CANDIDATE_VARIANT, step=step, select=_selecting(model, by_block), modules=tuple(by_block))
    if not info.takes_unlike_calls:
        for name, call in calls.items():
            assert call is not None, f"{case.backend} needs the calls that were recorded"
            call.require_alike(name, str(case.backend))
    made = {name: _compile(module, networks[name], call, case.backend, model.mode) for name, call in calls.items()}
    # Functions, even where they are modules: a module's attribute would become its child.
    functions = {networks[name]: partial(compiled) for name, compiled in made.items()}
    return Variant(
        name=CANDIDATE_VARIANT,
        step=step,
        select=_selecting(model, functions),
        modules=tuple(functions),
        packages=tuple(compiled for compiled in made.values() if isinstance(compiled, PackagedNetwork)),
    )


def _compile(module: Any, network: nn.Module, call: Call | None, backend: Backend, mode: Mode) -> Callable[..., Any]:
    with torch.set_grad_enabled(mode is Mode.TRAIN):
        compiled: Callable[..., Any] = module.compile_network(network, call, backend)
    if mode is Mode.TRAIN and isinstance(compiled, nn.Module):
        own = {parameter.data_ptr() for parameter in network.parameters()}
        if not {parameter.data_ptr() for parameter in compiled.parameters()} <= own:
            raise LabelNotReached(f"{backend} made a copy of the weights: training it would not train the model")
    return compiled


def _selecting(model: Model, compiled: Mapping[nn.Module, Callable[..., Any]]) -> Callable[[], None]:
    """Return a function that makes each network and block run its compiled form, or its own code where it has none.

    `nn.Module.compile()` uses the same attribute, so that all references to the module keep working. A module without a
    compiled form must not have the attribute, not even with None: `torch.jit.script` can't type it.

    `torch.compile` turns off, for the whole process, the checks of the arguments of `torch.distributions`, which wait
    for the device. Each variant gets them as they are now, so that eager is as if nothing had been compiled.
    """
    checks_arguments = Distribution._validate_args
    networks = list(model.networks().values())
    modules = [*networks, *(block for network in networks for block in blocks(network))]

    def select() -> None:
        for module in modules:
            if module in compiled:
                module._compiled_call_impl = compiled[module]
            else:
                vars(module).pop("_compiled_call_impl", None)
        Distribution.set_default_validate_args(checks_arguments)

    return select
