"""drq encodes as often as the authors' code (github.com/denisyarats/drq, commit dd040f1, drq.py)."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

import pytest
import torch

from torchzoo.zoo.catalog import find_models, load_model_class

if TYPE_CHECKING:
    from torchzoo.model import Model


@pytest.fixture
def model() -> Model:
    return load_model_class(find_models().spec("drq"))("train", "cpu", 2)


def test_a_train_step_encodes_as_often_as_the_authors(model: Model) -> None:
    """Targets and values at two shifts each; in its own update the actor encodes for itself, then the critic does."""
    calls: Counter[str] = Counter()
    for name in ("encoder", "target_encoder"):
        model.networks()[name].register_forward_hook(lambda *_, name=name: calls.update([name]))
    model.train_step()
    assert calls == {"encoder": 2 + 2 + 2, "target_encoder": 2}


def test_the_actors_loss_does_not_reach_the_convolutions(model: Model) -> None:
    model.update_actor(torch.randint(256, (2, 9, 84, 84), dtype=torch.uint8))
    assert all(parameter.grad is None for parameter in model.networks()["encoder"].parameters())
    assert all(parameter.grad is not None for parameter in model.networks()["actor"].parameters())
