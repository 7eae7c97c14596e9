"""A case that was timed in this process: the check runs the code that was timed, and compiles only what it must."""

from __future__ import annotations

import random
from collections.abc import Callable

import msgspec
import numpy as np
import pytest
from classifier import CPU, AlwaysDropping, Classifier, Compilers, check, is_right, timed_and_checked
from torch import Tensor, nn

from examples import CASE, SPEC
from torchzoo.case import Backend, CompileScope, Mode, Precision
from torchzoo.measure.check.check_case import check_case
from torchzoo.model import Model
from torchzoo.record import CheckStatus


class WithoutDropout(Classifier):
    """With a module of dropout that drops nothing."""

    def build_network(self) -> nn.Module:
        network = super().build_network()
        network[3].p = 0.0  # type: ignore[index]
        return network


@pytest.mark.parametrize(
    ("precision", "scope"),
    [
        (Precision.DEFAULT, CompileScope.NETWORK),
        (Precision.FP32, CompileScope.NETWORK),
        (Precision.AMP, CompileScope.STEP),
    ],
)
@pytest.mark.parametrize("mode", [Mode.TRAIN, Mode.EVAL])
def test_the_code_that_was_timed_is_checked(
    backend: Callable[..., str], mode: Mode, precision: Precision, scope: CompileScope
) -> None:
    compilers = Compilers(backend, is_right)
    found = timed_and_checked(WithoutDropout, mode, compilers.name, precision=precision, compile_scope=scope)
    assert found.status is CheckStatus.CORRECT, found
    if scope is CompileScope.NETWORK:
        assert compilers.graphs == 1


def test_evaluation_keeps_its_dropout_modules_which_drop_nothing(backend: Callable[..., str]) -> None:
    compilers = Compilers(backend, is_right)
    found = timed_and_checked(Classifier, Mode.EVAL, compilers.name)
    assert (found.status, compilers.graphs) == (CheckStatus.CORRECT, 1), found


class AlwaysDrops(WithoutDropout):
    def build_network(self) -> nn.Module:
        return nn.Sequential(super().build_network(), AlwaysDropping())


@pytest.mark.parametrize(("mode", "model_class"), [(Mode.TRAIN, Classifier), (Mode.EVAL, AlwaysDrops)])
def test_without_its_dropout_a_model_is_compiled_anew(
    backend: Callable[..., str], mode: Mode, model_class: type[Model]
) -> None:
    compilers = Compilers(backend, is_right)
    found = timed_and_checked(model_class, mode, compilers.name)
    assert (found.status, compilers.graphs) == (CheckStatus.CORRECT, 2), found
    assert mode is Mode.EVAL or "dropout" in found.compiled_anew


class Permuted(nn.Module):
    """Seeds NumPy in its forward pass, as BigBird does."""

    def forward(self, x: Tensor) -> Tensor:
        np.random.seed(3)  # noqa: NPY002  the global generator, which libraries use
        return x[:, np.random.permutation(3).tolist()]  # noqa: NPY002


class DrawsWithNumpy(WithoutDropout):
    def build_network(self) -> nn.Module:
        return nn.Sequential(super().build_network(), Permuted())


@pytest.mark.parametrize("mode", [Mode.TRAIN, Mode.EVAL])
def test_compiled_code_draws_what_eager_draws_with_numpy(mode: Mode) -> None:
    """Left alone, Dynamo seeds PyTorch where the model seeds NumPy."""
    found = check(DrawsWithNumpy, mode, "aot_eager")
    assert found.status is CheckStatus.CORRECT, found


class Scaled(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return x * random.random()


class DrawsWithPython(WithoutDropout):
    def build_network(self) -> nn.Module:
        return nn.Sequential(super().build_network(), Scaled())


@pytest.mark.parametrize("mode", [Mode.TRAIN, Mode.EVAL])
def test_code_that_was_timed_draws_what_eager_draws_with_python(backend: Callable[..., str], mode: Mode) -> None:
    compilers = Compilers(backend, is_right)
    found = timed_and_checked(DrawsWithPython, mode, compilers.name)
    assert (found.status, compilers.graphs) == (CheckStatus.CORRECT, 1), found


def test_nothing_is_reused_that_was_not_timed(backend: Callable[..., str]) -> None:
    compilers = Compilers(backend, is_right)
    case = msgspec.structs.replace(CASE, mode=Mode.EVAL, backend=Backend(compilers.name, None), batch_size=8)
    for _ in range(2):
        assert check_case(case, SPEC, WithoutDropout, CPU).status is CheckStatus.CORRECT
    assert compilers.graphs == 2
