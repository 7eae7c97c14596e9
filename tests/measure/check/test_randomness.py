"""All runs draw the same random numbers, and no run drops anything out."""

from __future__ import annotations

import pytest
import torch
from classifier import Classifier
from torch import Tensor, nn
from torch._inductor.lowering import lowerings
from torch._inductor.utils import run_and_get_code

from torchzoo.case import Mode
from torchzoo.measure.check.randomness import (
    RecordRandomDraws,
    ReplayRandomDraws,
    compiled_draws_as_eager,
    without_dropout,
)


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


def test_inductor_keeps_bernoulli_and_draws_what_eager_draws(monkeypatch: pytest.MonkeyPatch) -> None:
    """Left alone, inductor makes `rand < p` of it. On the CPU both draw the same numbers, so the code is looked at."""
    monkeypatch.setenv("CI", "true")
    monkeypatch.delitem(lowerings, torch.ops.aten.bernoulli.default, raising=False)
    monkeypatch.setattr(torch._inductor.config, "force_disable_caches", True)

    def draw(shares: Tensor) -> Tensor:
        return torch.bernoulli(shares) + torch.rand_like(shares)

    shares = torch.full((64,), 0.3)
    torch.manual_seed(1)
    expected = draw(shares)
    torch._dynamo.reset()
    _, code = run_and_get_code(torch.compile(draw), shares)
    assert "aten.bernoulli" not in _calls(code)
    torch._dynamo.reset()
    with compiled_draws_as_eager(if_draws=True):
        torch.manual_seed(1)
        drawn, code = run_and_get_code(torch.compile(draw), shares)
    assert "aten.bernoulli" in _calls(code)
    assert torch.equal(drawn, expected)
    torch._dynamo.reset()
    _, code = run_and_get_code(torch.compile(draw), shares)
    assert "aten.bernoulli" not in _calls(code)  # the decomposition is back


def _calls(code: list[str]) -> str:
    """The lines of generated code without its comments, which name the operators of the source."""
    return "\n".join(line for part in code for line in part.splitlines() if not line.strip().startswith("#"))
