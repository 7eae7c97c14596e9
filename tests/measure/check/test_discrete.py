"""Whole numbers that follow from floating ones: judged by what an error that is allowed can flip."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from classifier import Classifier, check
from torch import Tensor, nn

from torchzoo.case import Mode
from torchzoo.measure.check.rounding import MovedDecisions
from torchzoo.model.tasks import Batch
from torchzoo.record import CheckStatus

PIXELS = 64


class Masks(nn.Module):
    """Logits of pixels, of which one lies at `edge` times their scale, and which of them are above zero."""

    edge: float
    flip: Callable[[Tensor], Tensor]

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(PIXELS, PIXELS)

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        logits = self.layer(x)
        low = 0.01 * torch.where(logits > 0, 1.0, -1.0).to(logits.dtype)
        logits = torch.where(logits.abs() < 0.01, low, logits)  # one pixel alone is near the edge
        logits = torch.cat([logits[:, :-1], torch.full_like(logits[:, :1], self.edge) * (1 + 0 * logits[:, :1])], 1)
        if torch.compiler.is_compiling():
            return logits, type(self).flip(logits)
        return logits, logits > 0


def masks(edge: float, flip: Callable[[Tensor], Tensor]) -> Any:
    class Made(Masks):
        pass

    Made.edge, Made.flip = edge, staticmethod(flip)  # type: ignore[assignment]

    class Model(Classifier):
        def build_network(self) -> nn.Module:
            return Made()

        def build_batch(self) -> Batch:
            return Batch((self.data.normal(self.batch_size, PIXELS),), self.data.labels(self.batch_size, 3))

    return check(Model, Mode.EVAL, "aot_eager")


def flips_the_one_near_zero(logits: Tensor) -> Tensor:
    return (logits > 0) ^ (logits.abs() < 1e-3)


def flips_a_twentieth(logits: Tensor) -> Tensor:
    return (logits > 0) ^ (torch.arange(PIXELS) % 20 == 3)


def flips_one_far_from_zero(logits: Tensor) -> Tensor:
    return (logits > 0) ^ ((torch.arange(PIXELS) == 3) & (torch.arange(len(logits)) == 2)[:, None])


@pytest.mark.parametrize(
    ("edge", "flip", "status"),
    [
        (1e-6, flips_the_one_near_zero, CheckStatus.CORRECT),
        (5e-4, flips_the_one_near_zero, CheckStatus.INCORRECT),
        (1e-6, flips_a_twentieth, CheckStatus.INCORRECT),
        (5e-4, flips_one_far_from_zero, CheckStatus.INCORRECT),
    ],
)
def test_a_mask_may_flip_where_its_logit_is_nearer_to_the_edge_than_an_output_may_be_off(
    edge: float, flip: Callable[[Tensor], Tensor], status: CheckStatus
) -> None:
    """An output may be off by 1e-4 of its scale at fp32. The logits' is about 0.6."""
    found = masks(edge, flip)
    assert found.status is status, found
    if status is CheckStatus.INCORRECT:
        assert "integers: output[1] is off by" in found.reason


def decided(decide: Callable[[Tensor], Tensor], values: Tensor) -> list[Tensor]:
    found = []
    for sign in (1, -1):
        with MovedDecisions(1e-2, sign):
            found.append(decide(values))
    return found


@pytest.mark.parametrize(
    "decide",
    [
        lambda values: values > 1.25,
        lambda values: values.gt(1.25),
        lambda values: torch.bucketize(values, torch.tensor([1.25])),
        lambda values: (values - 0.75).round(),
        lambda values: (4 * values - 4).to(torch.int64),
    ],
)
def test_what_lies_near_an_edge_is_on_the_other_side_with_one_of_two_signs(decide: Callable[[Tensor], Tensor]) -> None:
    values = torch.tensor([1.2501, 1.6, 0.9, 2.0, -1.6])  # the root mean square is 1.5
    flips = [decide(values) != one for one in decided(decide, values)]
    assert (flips[0] ^ flips[1]).tolist() == [True, False, False, False, False]


def test_choices_of_the_largest_are_decisions() -> None:
    values = torch.tensor([[1.5001, 1.5, 0.2], [2.5, 1.5, 0.2]])
    for decide in (lambda v: v.argmax(1), lambda v: v.max(1).indices, lambda v: v.topk(1).indices[:, 0]):
        rows = torch.stack(decided(decide, values))
        assert (rows[:, 1] == 0).all()


def test_whole_numbers_infinities_and_what_decides_nothing_stay() -> None:
    values = torch.tensor([0.0, 3.0, -torch.inf, torch.inf])
    for one in decided(lambda v: v > 0, values):
        assert one.tolist() == [False, True, False, True]
    with MovedDecisions(0.5, 1):
        assert torch.equal(values[:2] * 1.5, torch.tensor([0.0, 4.5]))
        assert torch.equal(torch.tensor([1.3, 2.7]).double(), torch.tensor([1.3, 2.7]).double())
