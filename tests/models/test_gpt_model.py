"""An iteration of several micro-batches: gradients accumulated, one update."""

from __future__ import annotations

import torch

from torchzoo.case import Mode
from torchzoo_models._shared.gpt import Config
from torchzoo_models._shared.gpt_model import GPTModel, MicroBatch


class One(GPTModel):
    config = Config(vocabulary_size=64, length=8, layers=2, heads=2, width=16, dropout=0.0)
    learning_rate = 1e-2
    betas = (0.9, 0.95)


class Four(One):
    micro_batch_count = 4


def test_four_micro_batches_make_the_one_update_of_a_batch_four_times_as_large() -> None:
    four, one = Four(Mode.TRAIN, "cpu", 2, seed=0), One(Mode.TRAIN, "cpu", 8, seed=0)
    one.network.load_state_dict(four.network.state_dict())
    one.batch = [MicroBatch(*(torch.cat(parts) for parts in zip(*four.batch, strict=True)))]
    assert four.samples_per_step == one.samples_per_step == 8
    before = [parameter.detach().clone() for parameter in four.network.parameters()]
    torch.testing.assert_close(four.train_step(), one.train_step())
    for parameter, other in zip(four.network.parameters(), one.network.parameters(), strict=True):
        assert parameter.grad is not None
        torch.testing.assert_close(parameter.grad, other.grad, rtol=1e-4, atol=1e-6)
        torch.testing.assert_close(parameter, other, rtol=1e-3, atol=1e-4)
    assert all(not torch.equal(old, new) for old, new in zip(before, four.network.parameters(), strict=True))


def test_evaluation_has_one_batch_whatever_training_has() -> None:
    model = Four(Mode.EVAL, "cpu", 2, seed=0)
    assert model.samples_per_step == 2
    assert model.eval_step().shape == (2, 8, 64)
