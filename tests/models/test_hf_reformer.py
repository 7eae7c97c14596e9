"""Reformer's seeds in training: they follow from the generator's seed, and none is drawn twice in two steps."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from torchzoo.zoo.catalog import find_models, load_model_class


@pytest.mark.slow
@pytest.mark.parametrize("name", ["hf_Reformer", "hf:ReformerForMaskedLM"])
def test_two_steps_from_the_same_seed_are_the_same(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    seeds: list[int] = []
    seed_all = torch.manual_seed
    results = []
    for _ in range(2):
        model: Any = load_model_class(find_models().spec(name))("train", "cpu", 1)
        torch.manual_seed(3)
        with monkeypatch.context() as patch:
            patch.setattr(torch, "manual_seed", lambda seed: (seeds.append(seed), seed_all(seed)))
            results.append([model.train_step() for _ in range(2)])
    torch.testing.assert_close(results[0], results[1], rtol=0, atol=0)
    steps = seeds[: len(seeds) // 2]  # of the first model: 24 in a step, each of 12 seeds forward and backward
    assert steps == seeds[len(seeds) // 2 :]
    assert (len(steps), len(set(steps))) == (48, 24)
