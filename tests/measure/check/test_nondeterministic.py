"""Two runs of eager from one seed that do not agree: what is judged all the same, and what is not."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import pytest
from classifier import Classifier, check, drops_a_relu, is_right
from torch import Tensor, nn

from torchzoo.case import Mode
from torchzoo.record import CheckStatus


class Moody(Classifier):
    """No two of its runs agree, whatever is seeded."""

    runs = 0

    def forward(self) -> Tensor:
        type(self).runs += 1
        outputs: Tensor = super().forward()
        return outputs * (1 + 0.1 * type(self).runs)


@pytest.mark.parametrize("mode", [Mode.TRAIN, Mode.EVAL])
@pytest.mark.parametrize("name", ["eager", "aot_eager"])
def test_a_model_that_disagrees_with_itself_is_nondeterministic(name: str, mode: Mode) -> None:
    found = check(Moody, mode, name)
    assert found.status is CheckStatus.NONDETERMINISTIC
    assert "two runs of eager" in found.reason


class Fidgety(Classifier):
    """The gradient of one bias is another each time: it is before a normalization, so that only rounding is left."""

    steps = itertools.count(1)

    def build_network(self) -> nn.Module:
        network = super().build_network()
        bias: Any = network[0].bias
        bias.register_hook(lambda gradient: gradient + 0.01 * next(self.steps))
        return network


@pytest.mark.parametrize(("compiler", "status"), [(is_right, "partly_correct"), (drops_a_relu, "incorrect")])
def test_one_gradient_that_is_noise_does_not_keep_the_others_from_being_judged(
    backend: Callable[..., str], compiler: Callable[..., Any], status: str
) -> None:
    found = check(Fidgety, Mode.TRAIN, backend(compiler))
    assert found.status == status, found


class Restless(Classifier):
    """All gradients of every second pair of builds are larger by a percent: eager's second and the candidate's."""

    by = 0.01
    builds = itertools.count()

    def build_network(self) -> nn.Module:
        network = super().build_network()
        factor = 1 + self.by * (next(self.builds) // 2 % 2)
        for parameter in network.parameters():
            parameter.register_hook(lambda gradient: gradient * factor)
        return network


class MoreRestless(Restless):
    by = 0.2


@pytest.mark.parametrize(
    ("model_class", "compiler", "status"),
    [
        (Restless, is_right, CheckStatus.CORRECT),
        (Restless, drops_a_relu, CheckStatus.INCORRECT),
        (MoreRestless, is_right, CheckStatus.NONDETERMINISTIC),
    ],
)
def test_gradients_that_differ_a_little_each_time_are_judged_beside_that_and_the_row_says_so(
    backend: Callable[..., str], model_class: type[Restless], compiler: Callable[..., Any], status: CheckStatus
) -> None:
    model_class.builds = itertools.count()
    found = check(model_class, Mode.TRAIN, backend(compiler))
    assert found.status is status, found
    assert found.reason.startswith("two runs of eager from the same seed differ in gradients, most in network.")
    assert ("which counts as rounding" in found.reason) == (model_class is Restless)


class HalfMoody(Classifier):
    """One of three outputs is another each time."""

    def forward(self) -> tuple[Tensor, ...]:  # type: ignore[override]
        outputs = super().forward()
        return outputs, 2 * outputs, outputs + next(Fidgety.steps)


def test_one_output_that_is_another_each_time_keeps_all_from_being_judged() -> None:
    assert check(HalfMoody, Mode.EVAL, "aot_eager").status is CheckStatus.NONDETERMINISTIC
