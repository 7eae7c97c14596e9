"""modded-nanogpt: what each token sees, and Muon beside PyTorch's."""

from __future__ import annotations

import itertools
import sys
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

from torchzoo.measure.passes.flops import count_work
from torchzoo.zoo.catalog import find_models, load_model_class

MODEL_CLASS = load_model_class(find_models().spec("modded_nanogpt"))


def submodule(name: str) -> Any:
    return sys.modules[f"{MODEL_CLASS.__module__}.{name}"]


@pytest.mark.parametrize("window", ["long_window", "short_window"])
def test_attention_by_blocks_is_masked_attention_to_all_keys(window: str) -> None:
    small = MODEL_CLASS.small()
    assert small is not None
    model: Any = small("eval", "cpu", 2)
    network, c = model.network.double(), model.config
    tokens, attention = model.batch.inputs[0], network.blocks[0].attention
    assert (tokens == c.document_start).any()
    x = torch.randn(2, c.length, c.width, dtype=torch.float64)
    values = torch.randn_like(x)
    mixing = network.value_mixing[0]
    gradients = []
    for attend in (attention, lambda *inputs: dense(attention, *inputs, starts=tokens == c.document_start)):
        x.requires_grad_().grad = None
        found = attend(x, values, mixing, network.visible(tokens, getattr(c, window)))
        found.square().sum().backward()
        gradients.append((found, x.grad))
    torch.testing.assert_close(gradients[0], gradients[1])


def dense(attention: Any, x: Tensor, values: Tensor, mixing: Tensor, visible: Tensor, starts: Tensor) -> Tensor:
    """The same layer with all T x T scores. A token sees itself and those before it in its document and window."""
    c = attention.config
    query, key, value = (
        F.linear(x, matrix).view(2, c.length, c.heads, -1).transpose(1, 2) for matrix in attention.matrices[:3]
    )
    query, key = (attention.rotate(F.rms_norm(part, part.shape[-1:]).transpose(1, 2)) for part in (query, key))
    value = mixing[0] * value + mixing[1] * values.view(2, c.length, c.heads, -1).transpose(1, 2)
    scores = c.score_scale * query.transpose(1, 2) @ key.permute(0, 2, 3, 1)  # (B, H, T, T)
    window_blocks, document = visible.shape[-1] // c.block, starts.cumsum(1)
    for row, query_place, key_place in itertools.product(range(2), range(c.length), range(c.length)):
        is_seen = (
            key_place <= query_place
            and document[row, key_place] == document[row, query_place]
            and query_place // c.block - key_place // c.block < window_blocks
        )
        if not is_seen:
            scores[row, :, query_place, key_place] = -torch.inf
    found = (scores.softmax(-1) @ value).transpose(1, 2)
    gated = found * attention.gate(x[..., : c.gated_by]).sigmoid().unsqueeze(3)
    return F.linear(gated.flatten(2), attention.matrices[3])


def test_attention_takes_no_operations_outside_of_the_windows() -> None:
    model: Any = MODEL_CLASS("eval", "meta", 1)
    c, parameters = model.config, sum(parameter.numel() for parameter in model.network.blocks.parameters())
    weights = 2 * c.length * (parameters + model.network.head.weight.numel())
    scores = 4 * c.length * c.width * c.block * (3 * 7 + 8 * 3)
    assert count_work(model.eval_step).total == weights + scores


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
