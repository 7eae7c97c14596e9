"""StableAdamW against its paper's algorithm, number by number; and the masked tokens."""

from __future__ import annotations

import math
import sys

import pytest
import torch

from torchzoo.case import Mode
from torchzoo.zoo.catalog import find_models, load_model_class

Model = load_model_class(find_models().spec("modernbert_base"))
StableAdamW = sys.modules[f"{Model.__module__}.optimizer"].StableAdamW  # type: ignore[attr-defined]

RATE, BETAS, EPS, DECAY = 0.1, (0.9, 0.98), 1e-6, 1e-2


def by_hand(values: list[float], gradients: list[list[float]]) -> list[float]:
    """Algorithm 2 of the paper for one tensor, with a decay that does not depend on the learning rate."""
    first, second = [0.0] * len(values), [0.0] * len(values)
    for step, gradient in enumerate(gradients, start=1):
        b1, b2 = (beta * (1 - beta ** (step - 1)) / (1 - beta**step) for beta in BETAS)
        first = [b1 * m + (1 - b1) * g for m, g in zip(first, gradient, strict=True)]
        second = [b2 * v + (1 - b2) * g * g for v, g in zip(second, gradient, strict=True)]
        squares = [g * g / max(v, EPS**2) for g, v in zip(gradient, second, strict=True)]
        rate = RATE / max(1.0, math.sqrt(sum(squares) / len(squares)))
        moments = zip(values, first, second, strict=True)
        values = [x * (1 - DECAY) - rate * m / (math.sqrt(v) + EPS) for x, m, v in moments]
    return values


def test_it_is_the_papers_algorithm() -> None:
    random = torch.Generator().manual_seed(0)
    tensors = [torch.randn(size, generator=random, dtype=torch.float64).requires_grad_() for size in (3, 5)]
    steps = [[torch.randn(len(x), generator=random, dtype=torch.float64) * 10**n for x in tensors] for n in range(4)]
    expected = [by_hand(x.tolist(), [step[i].tolist() for step in steps]) for i, x in enumerate(tensors)]
    optimizer = StableAdamW([{"params": tensors, "weight_decay": DECAY}], lr=RATE, betas=BETAS, eps=EPS)
    for step in steps:
        for tensor, gradient in zip(tensors, step, strict=True):
            tensor.grad = gradient
        optimizer.step()
    for tensor, values in zip(tensors, expected, strict=True):
        assert tensor.tolist() == pytest.approx(values, rel=1e-5)


def test_three_of_ten_tokens_are_masked_and_only_these_are_predicted() -> None:
    inputs = Model(Mode.TRAIN, "meta", 2).batch.inputs
    assert inputs["input_ids"].shape == inputs["labels"].shape == (2, 512)

    class OnlyABatch(Model):
        def build_network(self) -> torch.nn.Module:
            return torch.nn.Linear(2, 2)

    batch = OnlyABatch(Mode.TRAIN, "cpu", 32).batch.inputs
    is_masked = batch["labels"] != -100
    assert is_masked.float().mean() == pytest.approx(0.3, abs=0.02)
    assert torch.equal(is_masked, batch["input_ids"] == 50_284)
