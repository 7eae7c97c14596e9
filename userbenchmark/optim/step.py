"""The model of `torchzoo userbenchmark optim`: its train step is an optimizer's work on another model's parameters.

The plan copies this file into each model folder that it writes, whose `__init__.py` has the model and the optimizer.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from torchzoo.case import Mode
from torchzoo.model import Inputs, Model
from torchzoo.zoo.catalog import NEEDS_DATA, load_model_class
from torchzoo.zoo.collections import Collection
from torchzoo.zoo.spec import read_spec


class ParametersOf(Model):
    """A model with all parameters of `source`'s networks, random values, and a gradient for each trainable one.

    No network is ever called. A sample is one trainable parameter tensor.
    """

    sample_unit = "parameter tensors"
    source: ClassVar[str]  # folder of the model or of its collection
    member: ClassVar[str] = ""  # the model's name in its collection
    gradient_scale: ClassVar[float] = 1e-2

    def build(self) -> None:
        copies: dict[int, nn.Parameter] = {}  # networks may share parameters
        self.lists = {
            name: nn.ParameterList([self._copy(parameter, copies) for parameter in network.parameters()])
            for name, network in self._source_networks().items()
        }
        self.trainable = [parameter for parameter in copies.values() if parameter.requires_grad]
        self.largest = max(self.trainable, key=Tensor.numel)
        self.batch: list[Tensor] = []
        self.build_step([self.gradient_scale * torch.randn_like(parameter) for parameter in self.trainable])

    def _source_networks(self) -> dict[str, nn.Module]:
        folder = Path(self.source)
        spec = Collection(folder.name, folder).spec(self.member) if self.member else read_spec(folder)
        model_class = load_model_class(spec)
        try:
            return model_class(Mode.TRAIN, "meta", spec.smoke_batch_size).networks()
        except NEEDS_DATA:  # its `build` reads values of tensors
            return model_class(Mode.TRAIN, "cpu", spec.smoke_batch_size).networks()
        finally:
            torch.manual_seed(self.seed)

    def _copy(self, parameter: Tensor, copies: dict[int, nn.Parameter]) -> nn.Parameter:
        if id(parameter) not in copies:
            values = torch.randn(parameter.shape, dtype=parameter.dtype, device=self.device)
            copies[id(parameter)] = nn.Parameter(values, requires_grad=parameter.requires_grad)
        return copies[id(parameter)]

    def build_step(self, gradients: list[Tensor]) -> None:
        raise NotImplementedError

    def networks(self) -> dict[str, nn.Module]:
        return dict(self.lists)

    @property
    def example_inputs(self) -> Inputs:
        return ()

    @property
    def samples_per_step(self) -> int:
        return len(self.trainable)


class OptimizerStep(ParametersOf):
    """The step `optimizer.step()`, with gradients that are set once."""

    optimizer_class: ClassVar[type[torch.optim.Optimizer]]
    options: ClassVar[dict[str, Any]]

    def build_step(self, gradients: list[Tensor]) -> None:
        for parameter, gradient in zip(self.trainable, gradients, strict=True):
            parameter.grad = gradient
        self.optimizer: torch.optim.Optimizer = self.optimizer_class(self.trainable, **self.options)

    def train_step(self) -> Tensor:
        self.step(self.optimizer)
        return self.largest.detach()


class _Deliver(torch.autograd.Function):
    """A backward pass of one node, which makes new gradients for all parameters and keeps none of them."""

    @staticmethod
    def forward(ctx: Any, given: list[Tensor], *parameters: Tensor) -> Tensor:
        ctx.given = given
        return parameters[0].new_zeros(())

    @staticmethod
    def backward(ctx: Any, *_: Tensor) -> Any:
        return None, *torch._foreach_mul(ctx.given, 1.0)


class ZeroGradStep(ParametersOf):
    """A step that resets gradients, accumulates new ones as a backward pass does, and runs a foreach SGD.

    If the old gradients are None, autograd stores the new ones. If they are zeros, it adds.
    """

    how: ClassVar[str]  # for_loop, foreach, set_to_none

    def build_step(self, gradients: list[Tensor]) -> None:
        self.batch = gradients
        self.optimizer = torch.optim.SGD(self.trainable, lr=1e-3, foreach=True)
        self.reset = self._reset()

    def _reset(self) -> Callable[[], None]:
        if self.how == "for_loop":
            return self._zero_one_by_one
        is_none = {"foreach": False, "set_to_none": True}[self.how]
        return lambda: self.optimizer.zero_grad(set_to_none=is_none)  # all at once: the optimizer is foreach

    def _zero_one_by_one(self) -> None:
        """Zero each gradient by a kernel, as `zero_grad` did before PyTorch's pull request 82777 (2022)."""
        for parameter in self.trainable:
            if parameter.grad is not None:
                parameter.grad.zero_()

    def train_step(self) -> Tensor:
        self.reset()
        self.backward(_Deliver.apply(self.batch, *self.trainable))
        self.step(self.optimizer)
        return self.largest.detach()
