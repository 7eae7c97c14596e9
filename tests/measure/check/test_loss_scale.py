"""A scale of the loss that is too large for the candidate alone: rounding decides whether a gradient overflows."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from classifier import Classifier, check, with_scaled_gradient

from torchzoo.case import Mode, Precision, ResultKind
from torchzoo.record import Check, CheckStatus

OTHERWISE = "judged with a loss scale of 4096, since with 65536 gradients: network."


def comes_near_the_limit(graph: torch.fx.GraphModule, _: Any) -> Callable[..., Any]:
    """Right, but on the way back its numbers are 64 times as large for a moment."""
    return lambda *args: tuple(
        with_scaled_gradient(with_scaled_gradient(output, 1 / 64), 64.0) for output in graph(*args)
    )


def gives_infinities(graph: torch.fx.GraphModule, _: Any) -> Callable[..., Any]:
    return lambda *args: tuple(with_scaled_gradient(output, float("inf")) for output in graph(*args))


def is_wrong_near_the_limit(graph: torch.fx.GraphModule, inputs: Any) -> Callable[..., Any]:
    near = comes_near_the_limit(graph, inputs)
    return lambda *args: tuple(with_scaled_gradient(output, 1.2) for output in near(*args))


@pytest.mark.parametrize(
    ("compiler", "status", "error"),
    [
        (comes_near_the_limit, CheckStatus.CORRECT, pytest.approx(0.0, abs=0.05)),
        (is_wrong_near_the_limit, CheckStatus.INCORRECT, pytest.approx(0.2, abs=0.05)),
        (gives_infinities, CheckStatus.INCORRECT, None),
    ],
)
def test_gradients_that_overflow_are_judged_with_a_smaller_scale(
    backend: Callable[..., str], compiler: Callable[..., Any], status: CheckStatus, error: object
) -> None:
    found = check(Classifier, Mode.TRAIN, backend(compiler), precision=Precision.AMP_FP16)
    assert found.status is status, found
    assert found.reason.startswith(OTHERWISE)
    assert error_of_gradients(found) == error


def error_of_gradients(found: Check) -> float | None:
    return next(one.error for one in found.comparisons if one.what is ResultKind.GRADIENTS)


def test_where_nothing_overflows_the_scale_stays(backend: Callable[..., str]) -> None:
    def is_wrong(graph: torch.fx.GraphModule, _: Any) -> Callable[..., Any]:
        return lambda *args: tuple(with_scaled_gradient(output, 1.2) for output in graph(*args))

    found = check(Classifier, Mode.TRAIN, backend(is_wrong), precision=Precision.AMP_FP16)
    assert found.status is CheckStatus.INCORRECT
    assert "loss scale" not in found.reason
