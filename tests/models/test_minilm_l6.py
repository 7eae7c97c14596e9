"""The loss of pairs of sentences, and what its step reads."""

from __future__ import annotations

import math
import sys

import pytest
import torch
from torch.nn import functional as F

from torchzoo.case import Mode
from torchzoo.zoo.catalog import find_models, load_model_class

Model = load_model_class(find_models().spec("minilm_l6"))
ranking_loss = sys.modules[Model.__module__].ranking_loss  # type: ignore[attr-defined]


def test_the_loss_is_the_surprise_at_the_right_partner() -> None:
    first, second = (F.normalize(torch.randn(3, 8, generator=torch.Generator().manual_seed(n)), dim=1) for n in (0, 1))
    surprises = []
    for row in range(3):
        scores = [20.0 * float(first[row] @ other) for other in second]
        surprises.append(-scores[row] + math.log(sum(math.exp(score) for score in scores)))
    assert ranking_loss(first, second).item() == pytest.approx(sum(surprises) / 3, rel=1e-5)
    assert ranking_loss(first, first).item() < ranking_loss(first, first.roll(1, dims=0)).item()


def test_a_train_step_reads_both_sentences_of_each_pair() -> None:
    train, evaluation = Model(Mode.TRAIN, "cpu", 2), Model(Mode.EVAL, "cpu", 2)
    assert (train.samples_per_step, evaluation.samples_per_step) == (4, 2)
    calls: list[torch.Tensor] = []
    train.networks()["network"].register_forward_hook(lambda _, inputs, __: calls.append(inputs[0]))
    train.train_step()
    (first,), second = train.batch
    assert [id(tokens) for tokens in calls] == [id(first), id(second)]
    assert not torch.equal(first, second)
    vectors = evaluation.eval_step()
    assert vectors.shape == (2, 384)
    torch.testing.assert_close(vectors.norm(dim=1), torch.ones(2))
