"""A few gradients that are off by little: other seeds decide."""

from __future__ import annotations

import pytest
import torch
from classifier import Classifier, check
from torch import Tensor, nn

from torchzoo.case import Mode
from torchzoo.verdict import CheckStatus


class Shifted(nn.Linear):
    """Where it is compiled, the gradient of its bias is off by `by`, with all seeds or with one."""

    by: float
    is_hit: Tensor

    def forward(self, x: Tensor) -> Tensor:
        bias = self.bias
        if torch.compiler.is_compiling():
            bias = bias + (bias - bias.detach()) * self.by * self.is_hit
        return nn.functional.linear(x, self.weight, bias)


class OffBySeed(Classifier):
    by, every_seed = 0.003, False

    def build_network(self) -> nn.Module:
        last = Shifted(16, 3)
        last.by = self.by
        last.register_buffer("is_hit", torch.tensor(float(self.every_seed or self.seed == 0)))
        return nn.Sequential(nn.Linear(6, 16), nn.ReLU(), nn.Linear(16, 16), nn.ReLU(), last)


class OffAlways(OffBySeed):
    every_seed = True


class OffByMuch(OffBySeed):
    by = 0.03


@pytest.mark.parametrize(
    ("model_class", "status"),
    [
        (OffBySeed, CheckStatus.CORRECT),
        (OffAlways, CheckStatus.INCORRECT),
        (OffByMuch, CheckStatus.INCORRECT),
    ],
)
def test_a_gradient_that_is_off_by_little_is_wrong_if_it_is_so_with_every_seed(
    model_class: type[OffBySeed], status: CheckStatus
) -> None:
    found = check(model_class, Mode.TRAIN, "aot_eager")
    assert found.status is status, found
    assert "gradients: network.4.bias is off by " in found.reason
    assert found.reason.startswith("judged with the seeds 1 and 2, since with 0 ") == (model_class is OffBySeed)
