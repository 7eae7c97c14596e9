"""A small model to check, and backends of the tests' own: right ones and wrong ones."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from examples import CASE, SPEC
from torchzoo.case import Backend, Case, Mode
from torchzoo.measure.case_rank import CaseRank
from torchzoo.measure.check.check_case import check_case
from torchzoo.measure.check.runs import timed_runs
from torchzoo.model import Model
from torchzoo.model.tasks import Batch, SupervisedModel
from torchzoo.record import CANDIDATE_VARIANT, EAGER_VARIANT, Check

CPU = torch.device("cpu")


class Classifier(SupervisedModel):
    """With batch normalisation and dropout, trained by Adam."""

    def build_network(self) -> nn.Module:
        return nn.Sequential(
            nn.Linear(6, 16),
            nn.BatchNorm1d(16),
            nn.ReLU(),
            nn.Dropout(0.5),
            nn.Linear(16, 16),
            nn.ReLU(),
            nn.Linear(16, 3),
        )

    def build_batch(self) -> Batch:
        return Batch((self.data.uniform(self.batch_size, 6),), self.data.labels(self.batch_size, 3))

    def compute_loss(self, outputs: Tensor, targets: Tensor) -> Tensor:
        return F.cross_entropy(outputs, targets)


def with_network(make: Callable[[], nn.Module]) -> type[Classifier]:
    """The classifier with another network."""

    class Made(Classifier):
        def build_network(self) -> nn.Module:
            return make()

    return Made


class AlwaysDropping(nn.Module):
    """Dropout that is never off, as in Tacotron 2."""

    def __init__(self) -> None:
        super().__init__()
        self.dropout = 0.5

    def forward(self, x: Tensor) -> Tensor:
        return nn.functional.dropout(x, self.dropout, training=True)


def check(model_class: type[Model], mode: Mode, backend: str = "eager", spec: Any = SPEC, **changes: Any) -> Check:
    name, _, option = backend.partition(":")
    case = msgspec.structs.replace(CASE, mode=mode, backend=Backend(name, option or None), batch_size=8, **changes)
    return check_case(case, spec, model_class, CPU)


def adds_a_hundredth(graph: torch.fx.GraphModule, _: Any) -> Callable[..., Any]:
    return lambda *args: tuple(output + 0.01 for output in graph(*args))


def adds_a_half(graph: torch.fx.GraphModule, _: Any) -> Callable[..., Any]:
    return lambda *args: tuple(out + 0.5 for out in graph(*args))


def drops_a_relu(graph: torch.fx.GraphModule, _: Any) -> Callable[..., Any]:
    for node in graph.graph.nodes:
        if "relu" in str(node.target).lower():
            node.replace_all_uses_with(node.args[0])
            graph.graph.erase_node(node)
            break
    else:
        raise AssertionError("there was no relu to drop")
    graph.recompile()
    return graph.forward


class _ScaledGradient(torch.autograd.Function):
    @staticmethod
    def forward(context: Any, x: Tensor, factor: float) -> Tensor:
        context.factor = factor
        return x.clone()

    @staticmethod
    def backward(context: Any, gradient: Tensor) -> tuple[Tensor, None]:
        return context.factor * gradient, None


def with_scaled_gradient(x: Tensor, factor: float) -> Tensor:
    """The same values, but what comes back through them is too large by this factor."""
    scaled: Tensor = _ScaledGradient.apply(x, factor)
    return scaled


def has_a_wrong_gradient(graph: torch.fx.GraphModule, _: Any) -> Callable[..., Any]:
    return lambda *args: tuple(with_scaled_gradient(output, 1.02) for output in graph(*args))


def is_right(graph: torch.fx.GraphModule, _: Any) -> Callable[..., Any]:
    return graph.forward


def raises_when_run(*_: Any) -> Callable[..., Any]:
    def run(*_: Any) -> Any:
        raise ArithmeticError("the candidate's own error")

    return run


class Compilers:
    """A backend that counts what it is given to compile."""

    def __init__(self, register: Callable[..., str], compiler: Callable[..., Any]) -> None:
        self.graphs = 0
        self._compiler = compiler
        self.name = register(self._counting())

    def _counting(self) -> Callable[..., Any]:
        def counting(graph: torch.fx.GraphModule, inputs: Any) -> Callable[..., Any]:
            self.graphs += 1
            return self._compiler(graph, inputs)

        return counting


def timed_and_checked(model_class: type[Model], mode: Mode, name: str, **changes: Any) -> Check:
    """The check of code that has taken two steps beside eager, as if it had been timed."""
    name, _, option = name.partition(":")
    case: Case = msgspec.structs.replace(
        CASE, mode=mode, backend=Backend(name, option or None), batch_size=8, **changes
    )
    own = CaseRank(case, SPEC, CPU, keeps_start=True)
    own.model_class = model_class
    own.build()
    own.prepare()
    own.inspect()
    own.add_candidate()
    for variant in (own.variants[CANDIDATE_VARIANT], own.variants[EAGER_VARIANT]):
        variant.select()
        variant.step()
        variant.step()
    timed = timed_runs(own)
    own.release()
    return check_case(case, SPEC, model_class, CPU, timed=timed)
