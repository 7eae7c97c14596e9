"""modded-nanogpt: what each token sees, and Muon beside PyTorch's."""

from __future__ import annotations

import sys
from typing import Any

import pytest
import torch

from torchzoo.zoo.catalog import find_models, load_model_class

MODEL_CLASS = load_model_class(find_models().spec("modded_nanogpt"))


def submodule(name: str) -> Any:
    return sys.modules[f"{MODEL_CLASS.__module__}.{name}"]


def test_a_token_sees_its_document_within_its_window_and_nothing_later() -> None:
    small = MODEL_CLASS.small()
    assert small is not None
    model: Any = small("eval", "cpu", 2)
    tokens, c = model.batch.inputs[0], model.config
    visible = model.network.visible(tokens, c.short_window)
    assert visible.shape == (2, 1, c.length, c.length)
    for row, text in enumerate(tokens.tolist()):
        document = 0
        documents = [document := document + (token == c.document_start) for token in text]
        assert document > 0
        for query in range(c.length):
            seen = [
                key <= query
                and documents[key] == documents[query]
                and query // c.block - key // c.block < c.short_window
                for key in range(c.length)
            ]
            assert visible[row, 0, query].tolist() == seen


def test_the_loss_of_a_document_does_not_depend_on_the_one_before() -> None:
    small = MODEL_CLASS.small()
    assert small is not None
    model: Any = small("eval", "cpu", 1)
    network, c = model.network, model.config
    tokens = torch.randint(0, c.document_start, (1, c.length))
    tokens[0, 20] = c.document_start
    other = tokens.clone()
    other[0, :20] = torch.randint(0, c.document_start, (20,))
    found = []
    network.head.register_forward_hook(lambda *seen: found.append(seen[2][:, 20:]))
    with torch.no_grad():
        network(tokens, tokens)
        network(other, tokens)
    torch.testing.assert_close(*found)


@pytest.mark.parametrize("shape", [(16, 48), (48, 16)])
def test_muon_makes_the_updates_of_pytorchs(shape: tuple[int, int]) -> None:
    ours, theirs = (torch.nn.Parameter(torch.linspace(-1, 1, 16 * 48).reshape(shape).clone()) for _ in range(2))
    optimizers = [
        submodule("muon").MuonAdam([{"params": [ours], "lr": 0.05, "is_matrix": True}]),
        torch.optim.Muon([theirs], lr=0.05, weight_decay=0.0, momentum=0.95, adjust_lr_fn="original"),
    ]
    generator = torch.Generator().manual_seed(0)
    for _ in range(3):
        gradient = torch.randn(shape, generator=generator)
        for parameter, optimizer in zip((ours, theirs), optimizers, strict=True):
            parameter.grad = gradient.clone()
            optimizer.step()
    # Products in bfloat16, in another order. Without Nesterov's momentum, or with a step less, 1e-2 is exceeded.
    torch.testing.assert_close(ours, theirs, rtol=0, atol=4e-3)
    assert (ours - torch.linspace(-1, 1, 16 * 48).reshape(shape)).abs().max() > 0.02


def test_stacked_matrices_become_orthogonal_each_by_itself() -> None:
    matrices = torch.randn(3, 24, 24, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    orthogonalised = submodule("muon").orthogonalised
    values = torch.linalg.svdvals(orthogonalised(matrices))
    assert values.min() > 0.3
    assert values.max() < 1.3
    torch.testing.assert_close(orthogonalised(matrices[1]), orthogonalised(matrices)[1])


def test_what_is_no_matrix_gets_adams_updates() -> None:
    ours, theirs = (torch.nn.Parameter(torch.linspace(-1, 1, 20)) for _ in range(2))
    settings: dict[str, Any] = {"lr": 0.008, "betas": (0.8, 0.95), "eps": 1e-10}
    optimizers = [submodule("muon").MuonAdam([{"params": [ours], **settings}]), torch.optim.Adam([theirs], **settings)]
    for _ in range(3):
        gradient = torch.randn(20)
        for parameter, optimizer in zip((ours, theirs), optimizers, strict=True):
            parameter.grad = gradient.clone()
            optimizer.step()
    torch.testing.assert_close(ours, theirs)
