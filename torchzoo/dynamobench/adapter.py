"""Adapt a model of the zoo to the form of TorchBench's models that dynamobench reads.

Dynamobench calls the network with its inputs. Its training step takes the mean of the outputs as the loss, and has an
optimizer of its own (on the CPU none). So neither the loss nor the optimizer of the zoo's step is used.
"""

from __future__ import annotations

import copy
from typing import Any, ClassVar

from torch import Tensor, nn
from torch._dynamo.testing import reduce_to_scalar_loss
from torch._dynamo.utils import clone_inputs

from torchzoo.case import Case, Mode
from torchzoo.dynamobench.names import PLAIN, NameRefused
from torchzoo.errors import attempt, one_line
from torchzoo.model import Inputs, Model
from torchzoo.zoo.catalog import Catalog, load_model_class
from torchzoo.zoo.spec import ModelSpec

#: Arguments that dynamobench passes to each model in addition to its own options.
RANK_OPTIONS = ("--rank", "--world_size")


def benchmark_class(catalog: Catalog, name: str, found: str | NameRefused) -> type:
    """The class `Model` of `torchbenchmark.models.NAME`."""
    spec = None if isinstance(found, NameRefused) else catalog.spec(found)
    contents = {
        "name": name,
        "spec": spec,
        "refusal": found.reason if isinstance(found, NameRefused) else None,
        "DEFAULT_TRAIN_BSIZE": None if spec is None else spec.batch_size.get(Mode.TRAIN),
        "DEFAULT_EVAL_BSIZE": None if spec is None else spec.batch_size.get(Mode.EVAL),
    }
    return type("Model", (BenchmarkModel,), contents)


class BenchmarkModel:
    """The class that dynamobench instantiates for a model.

    Raises:
        NotImplementedError: the model can't run; the message says why. Dynamobench writes `model_fail_to_load`.
    """

    name: ClassVar[str]
    spec: ClassVar[ModelSpec | None]
    refusal: ClassVar[str | None]
    ALLOW_CUSTOMIZE_BSIZE: ClassVar[bool] = True
    DEFAULT_TRAIN_BSIZE: ClassVar[int | None]
    DEFAULT_EVAL_BSIZE: ClassVar[int | None]

    def __init__(
        self,
        test: str,
        device: str,
        batch_size: int | None = None,
        extra_args: list[str] | None = None,
        model_kwargs: dict[str, Any] | None = None,
    ) -> None:
        if self.spec is None:
            raise NotImplementedError(self.refusal)
        mode = Mode(test)
        self.test, self.device = test, device
        self.batch_size = batch_size or self.spec.batch_size.get(mode) or self.spec.smoke_batch_size
        _check_arguments(self.name, extra_args or [], model_kwargs or {})
        _check_skips(self.spec, Case(model=self.spec.name, mode=mode, device=device, batch_size=self.batch_size))
        model = self._built(self.spec, mode)
        network = next(iter(model.networks().values()))
        self.network, self.inputs = callable_by_position(network, model.example_inputs)
        if mode is Mode.TRAIN:
            check_loss(self.name, self.network, self.inputs)

    def _built(self, spec: ModelSpec, mode: Mode) -> Model:
        """The model at this batch size, or at the smoke batch size if the model refuses this one.

        In accuracy mode, dynamobench requests a batch of 4 of every model, even of grid points in columns of 26.
        """
        model_class = load_model_class(spec)
        model = attempt(lambda: model_class(mode, self.device, self.batch_size))
        if isinstance(model, ValueError):
            print(f"{self.name}: {one_line(model)}; its batch is {spec.smoke_batch_size}")
            self.batch_size = spec.smoke_batch_size
            return model_class(mode, self.device, self.batch_size)
        if isinstance(model, Exception):
            raise model
        return model

    def get_module(self) -> tuple[nn.Module, Inputs]:
        """The main network, and its inputs."""
        return self.network, self.inputs


class ByPosition(nn.Module):
    """A network that takes its named inputs by position."""

    def __init__(self, network: nn.Module, names: tuple[str, ...]) -> None:
        super().__init__()
        self.network, self.names = network, names

    def forward(self, *values: Any) -> Any:
        return self.network(**dict(zip(self.names, values, strict=True)))


def callable_by_position(network: nn.Module, inputs: Inputs) -> tuple[nn.Module, Inputs]:
    """The network and inputs in a form that dynamobench can copy.

    Dynamobench copies a dict of tensors only. Of a tuple, it copies the tensors, and passes the rest unchanged.
    """
    if isinstance(inputs, tuple) or all(isinstance(value, Tensor) for value in inputs.values()):
        return network, inputs
    return ByPosition(network, tuple(inputs)), tuple(inputs.values())


def _check_arguments(name: str, extra_args: list[str], model_kwargs: dict[str, Any]) -> None:
    unknown = [word for word in extra_args if word.startswith("-") and word not in RANK_OPTIONS]
    unknown += [f"{key}={value}" for key, value in model_kwargs.items()]
    if unknown:
        raise NotImplementedError(
            f"{name}: the model takes no {', '.join(unknown)}; dynamobench gives it to models of this name: "
            f"take --only {PLAIN}{name}"
        )


def _check_skips(spec: ModelSpec, case: Case) -> None:
    reasons = [rule.reason for rule in spec.skips if rule.matches(case)]
    if case.mode not in spec.batch_size or reasons:
        raise NotImplementedError(f"{spec.name} has no {case.mode} on {case.device_type}: {'; '.join(reasons)}")


def check_loss(name: str, network: nn.Module, inputs: Inputs) -> None:
    """Check that dynamobench can form a loss of the outputs, in training mode or in evaluation mode.

    Raises:
        NotImplementedError: dynamobench can't form a loss.
    """
    reasons = []
    for training in (True, False):
        trial = copy.deepcopy(network).train(training)
        reason = _no_loss(trial, clone_inputs(inputs))
        if reason is None:
            return
        reasons.append(reason)
    raise NotImplementedError(f"{name}: dynamobench can't form a loss from its outputs: {reasons[0]}")


def _no_loss(network: nn.Module, inputs: Any) -> str | None:
    """The reason why the mean of the outputs is no loss, or None."""
    outputs = attempt(lambda: network(**inputs) if isinstance(inputs, dict) else network(*inputs))
    if isinstance(outputs, Exception):
        return f"a copy of the network does not run: {one_line(outputs)}"
    loss = attempt(lambda: reduce_to_scalar_loss(outputs))
    if isinstance(loss, Exception):
        return one_line(loss)
    if not isinstance(loss, Tensor) or not loss.requires_grad:
        parameters = list(network.parameters())
        if parameters and not any(parameter.requires_grad for parameter in parameters):
            return f"all parameters of its main network, {type(network).__name__}, are frozen"
        return "no gradient leads from them to a parameter"
    return None
