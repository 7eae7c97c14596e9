"""A model is put back to its state before the first step, in place."""

from __future__ import annotations

from collections import deque
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from torchzoo.case import Mode
from torchzoo.measure import start_state
from torchzoo.measure.start_state import CanNotRestore, StartState
from torchzoo.model.tasks import Batch, SupervisedModel


class Buffer:
    """A class of the model's own, with a state."""

    def __init__(self) -> None:
        self.rows = [torch.zeros(2)]
        self.written = 0


class Stateful(SupervisedModel):
    """It changes all kinds of things in each step."""

    def build(self) -> None:
        super().build()
        self.counter, self.queue, self.seen = 0, deque([1], maxlen=3), {"a": [1]}
        self.replay, self.generator = Buffer(), torch.Generator().manual_seed(3)

    def build_network(self) -> nn.Module:
        return nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4), nn.Linear(4, 2))

    def build_batch(self) -> Batch:
        return Batch((self.data.normal(self.batch_size, 3),), self.data.labels(self.batch_size, 2))

    def compute_loss(self, outputs: Tensor, targets: Tensor) -> Tensor:
        return F.cross_entropy(outputs, targets)

    def forward(self) -> Any:
        self.counter += 1
        self.queue.append(self.counter)
        self.seen["a"].append(2)
        self.seen["b"] = [self.counter]
        self.replay.rows.append(torch.rand(2, generator=self.generator))
        self.replay.rows[0].add_(1.0)
        self.replay.written += 1
        self.made_by_a_step = True
        self.batch.inputs[0].mul_(0.9)
        return super().forward() * self.counter + self.replay.rows[-1].sum()


@pytest.mark.parametrize("mode", [Mode.TRAIN, Mode.EVAL])
def test_steps_from_the_start_are_those_of_a_new_model(mode: Mode) -> None:
    def steps(model: Stateful) -> list[Tensor]:
        return [model.measured_step().clone() for _ in range(3)]

    expected = steps(Stateful(mode, "cpu", 4))
    model = Stateful(mode, "cpu", 4)
    start = StartState(model)
    weight, rows = model.network[0].weight, model.replay.rows
    for _ in range(2):
        assert all(map(torch.equal, steps(model), expected))
        start.restore()
        assert model.network[0].weight is weight
        assert model.replay.rows is rows
        assert (model.counter, list(model.queue), model.seen) == (0, [1], {"a": [1]})
        assert (len(rows), float(rows[0].sum()), model.replay.written) == (1, 0.0, 0)
        assert not hasattr(model, "made_by_a_step")
        assert weight.grad is None


def test_parameters_are_kept_in_training_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    start = {mode: StartState(Stateful(mode, "cpu", 4)) for mode in (Mode.TRAIN, Mode.EVAL)}
    assert any(isinstance(tensor, nn.Parameter) for tensor, _ in start[Mode.TRAIN]._tensors)
    assert not any(isinstance(tensor, nn.Parameter) for tensor, _ in start[Mode.EVAL]._tensors)
    monkeypatch.setattr(start_state, "_SHARE_OF_DISK", 0.0)
    with pytest.raises(CanNotRestore, match="too little room"):
        StartState(Stateful(Mode.TRAIN, "cpu", 4))


def test_another_shape_can_not_be_put_back() -> None:
    model = Stateful(Mode.EVAL, "cpu", 4)
    start = StartState(model)
    model.replay.rows[0].resize_(5)
    with pytest.raises(CanNotRestore, match="shape"):
        start.restore()
