"""A case that was timed in this process: the check runs the code that was timed, and compiles only what it must."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec
import pytest
import torch
from classifier import CPU, Classifier, drops_a_relu, is_right
from torch import Tensor, nn

from examples import CASE, SPEC
from torchzoo.case import Backend, Case, CompileScope, Mode, Precision
from torchzoo.measure.check.check import check_case
from torchzoo.measure.precision import apply_precision, inspect_step
from torchzoo.measure.variant import candidate_variant
from torchzoo.model import Model
from torchzoo.record import Check, CheckStatus


class WithoutDropout(Classifier):
    """With a module of dropout that drops nothing."""

    def build_network(self) -> nn.Module:
        network = super().build_network()
        network[3].p = 0.0  # type: ignore[index]
        return network


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
    case: Case = msgspec.structs.replace(CASE, mode=mode, backend=Backend(name, None), batch_size=8, **changes)
    model = model_class(mode, CPU, 8)
    apply_precision(model, case.precision)
    candidate = candidate_variant(
        model, model.measured_step, case, inspect_step(model, model.measured_step).take_calls()
    )
    candidate.select()
    candidate.step()
    candidate.step()
    del model, candidate
    return check_case(case, SPEC, model_class, CPU, was_timed=True)


@pytest.mark.parametrize("scope", [CompileScope.NETWORK, CompileScope.STEP])
@pytest.mark.parametrize("precision", [Precision.DEFAULT, Precision.FP32, Precision.AMP])
@pytest.mark.parametrize("mode", [Mode.TRAIN, Mode.EVAL])
def test_the_code_that_was_timed_is_checked(
    backend: Callable[..., str], mode: Mode, precision: Precision, scope: CompileScope
) -> None:
    compilers = Compilers(backend, is_right)
    found = timed_and_checked(WithoutDropout, mode, compilers.name, precision=precision, compile_scope=scope)
    assert found.status is CheckStatus.CORRECT, found
    if scope is CompileScope.NETWORK:
        assert compilers.graphs == 1


@pytest.mark.parametrize("mode", [Mode.TRAIN, Mode.EVAL])
def test_wrong_code_that_was_timed_is_found(backend: Callable[..., str], mode: Mode) -> None:
    compilers = Compilers(backend, drops_a_relu)
    found = timed_and_checked(WithoutDropout, mode, compilers.name)
    assert (found.status, compilers.graphs) == (CheckStatus.INCORRECT, 1)


def test_evaluation_keeps_its_dropout_modules_which_drop_nothing(backend: Callable[..., str]) -> None:
    compilers = Compilers(backend, is_right)
    found = timed_and_checked(Classifier, Mode.EVAL, compilers.name)
    assert (found.status, compilers.graphs) == (CheckStatus.CORRECT, 1), found


class Always(nn.Module):
    """Dropout that is never off, as in Tacotron 2."""

    def __init__(self) -> None:
        super().__init__()
        self.dropout = 0.5

    def forward(self, x: Tensor) -> Tensor:
        return nn.functional.dropout(x, self.dropout, training=True)


class AlwaysDrops(WithoutDropout):
    def build_network(self) -> nn.Module:
        return nn.Sequential(super().build_network(), Always())


@pytest.mark.parametrize(("mode", "model_class"), [(Mode.TRAIN, Classifier), (Mode.EVAL, AlwaysDrops)])
def test_without_its_dropout_a_model_is_compiled_anew(
    backend: Callable[..., str], mode: Mode, model_class: type[Model]
) -> None:
    compilers = Compilers(backend, is_right)
    found = timed_and_checked(model_class, mode, compilers.name)
    assert (found.status, compilers.graphs) == (CheckStatus.CORRECT, 2), found


def test_nothing_is_reused_that_was_not_timed(backend: Callable[..., str]) -> None:
    compilers = Compilers(backend, is_right)
    case = msgspec.structs.replace(CASE, mode=Mode.EVAL, backend=Backend(compilers.name, None), batch_size=8)
    for _ in range(2):
        assert check_case(case, SPEC, WithoutDropout, CPU).status is CheckStatus.CORRECT
    assert check_case(case, SPEC, WithoutDropout, CPU, was_timed=True).status is CheckStatus.CORRECT
    assert compilers.graphs == 3
