"""All runs draw the same random numbers, and no run drops anything out."""

from __future__ import annotations

import torch
from classifier import Classifier
from torch import nn

from torchzoo.case import Mode
from torchzoo.measure.check.randomness import RecordRandomDraws, ReplayRandomDraws, without_dropout


def test_draws_are_returned_again_in_another_dtype_until_a_draw_is_unlike_the_recorded_one() -> None:
    recorded = RecordRandomDraws()
    with recorded:
        first, second = torch.randn(3), torch.randperm(5)
        third = torch.empty(2).uniform_()
    with ReplayRandomDraws(recorded.draws):
        assert torch.equal(torch.randn(3, dtype=torch.float64), first.double())
        assert torch.equal(torch.randperm(5), second)
        assert torch.equal(torch.empty(2, dtype=torch.float64).uniform_(), third.double())
    with ReplayRandomDraws(recorded.draws):
        assert not torch.equal(torch.randn(4), torch.randn(4))
        assert not torch.equal(torch.randn(3), first)


def test_every_kind_of_dropout_is_off() -> None:
    class Layered(Classifier):
        def build_network(self) -> nn.Module:
            network = nn.ModuleList(
                [nn.Dropout2d(0.3), nn.LSTM(4, 4, 2, dropout=0.2), nn.MultiheadAttention(4, 2, dropout=0.1)]
            )
            network.layerdrop = 0.4  # type: ignore[assignment]
            return network

    model = Layered(Mode.TRAIN, "cpu", 2)
    without_dropout(model)
    dropout, lstm, attention = model.network  # type: ignore[misc]
    assert (dropout.p, lstm.dropout, attention.dropout, model.network.layerdrop) == (0.0, 0.0, 0.0, 0.0)
