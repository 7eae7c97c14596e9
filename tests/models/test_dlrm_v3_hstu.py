"""dlrm_v3_hstu: users are independent, candidates are independent, attention is the pointwise one of a plain loop."""

from __future__ import annotations

import dataclasses
import sys
from typing import TYPE_CHECKING, Any

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

from torchzoo.zoo.catalog import find_models, load_model_class

if TYPE_CHECKING:
    from types import ModuleType

    from torchzoo.model import Model

USERS, CANDIDATES = 4, 3


@pytest.fixture(scope="module")
def model() -> Model:
    small = load_model_class(find_models().spec("dlrm_v3_hstu")).small()
    assert small is not None
    return small("eval", "cpu", USERS)


@pytest.fixture(scope="module")
def network(model: Model) -> ModuleType:
    return sys.modules[f"{type(model).__mro__[1].__module__}.network"]


def changed(model: Model, name: str, place: int) -> Tensor:
    """The logits (B, C) after one more is added to an item, a category or an action."""
    inputs: dict[str, Tensor] = dict(model.batch.inputs)
    inputs[name] = inputs[name].clone()
    inputs[name][place] ^= 1
    with torch.no_grad():
        return model.networks()["network"](**inputs)


def moves(logits: Tensor, model: Model) -> Tensor:
    return ~torch.isclose(logits, model.eval_step(), rtol=0, atol=1e-6)


def test_a_users_history_decides_on_the_users_candidates_only(model: Model) -> None:
    second = int(model.batch.inputs["lengths"][0])  # the first item of the second user
    moved = moves(changed(model, "items", second), model)
    assert moved[1].all()
    assert not moved[[0, 2, 3]].any()


@pytest.mark.parametrize("name", ["items", "categories"])
def test_a_candidate_decides_on_itself_only(model: Model, name: str) -> None:
    first_candidate = int(model.batch.inputs["lengths"][0]) - CANDIDATES
    moved = moves(changed(model, name, first_candidate), model)
    assert moved[0].tolist() == [True, False, False]
    assert not moved[1:].any()


def test_actions_count_for_the_history_and_not_for_candidates(model: Model) -> None:
    first_candidate = int(model.batch.inputs["lengths"][0]) - CANDIDATES
    assert not moves(changed(model, "actions", first_candidate), model).any()
    assert moves(changed(model, "actions", first_candidate - 1), model)[0].all()


@pytest.mark.parametrize("query_block", [2, 3, 16])
@pytest.mark.parametrize("sizes", [[(1, 4), (1, 7)], [(2, 7)]])
def test_a_layer_is_the_papers_for_each_user(
    model: Model, network: Any, sizes: list[tuple[int, int]], query_block: int
) -> None:
    layer = model.networks()["network"].layers[0]
    config = dataclasses.replace(model.networks()["network"].config, query_block=query_block)
    jagged = network.Jagged(torch.tensor([7, 4]), 11, 9)
    groups = network.Groups(jagged, sizes)
    x = torch.randn(11, layer.norm.normalized_shape[0], generator=torch.Generator().manual_seed(0))
    with torch.no_grad():
        outputs = layer(x, network.attention_weights(jagged, groups, config, x.dtype), groups)
        expected = torch.cat([one_user(layer, part) for part in x.split([7, 4])])
    torch.testing.assert_close(outputs, expected)


def test_gradients_do_not_depend_on_groups_and_blocks(model: Model) -> None:
    network: Any = model.networks()["network"]
    inputs, config, gradients = dict(model.batch.inputs), network.config, []
    dense = [parameter for name, parameter in network.named_parameters() if not name.startswith("tables.")]
    for groups, block in ((2, 8), (1, config.most_tokens)):
        network.config = dataclasses.replace(config, groups=groups, query_block=block)
        gradients.append(torch.autograd.grad(network(**inputs).square().sum(), dense))
    network.config = config
    torch.testing.assert_close(gradients[0], gradients[1])


@pytest.mark.parametrize("users", [1, 2, 7, 128])
def test_groups_have_room_for_all_users(network: Any, users: int) -> None:
    config = network.Config()
    histories, sizes = config.histories(users), config.group_sizes(users)
    assert sum(count for count, _ in sizes) == users
    room = [tokens for count, tokens in sizes for _ in range(count)]
    assert all(1 + history + config.candidates <= tokens for history, tokens in zip(histories, room, strict=True))
    assert max(room) == 1 + histories[-1] + config.candidates
    assert 1280 * users - users <= sum(histories) <= 1280 * users


def one_user(layer: Any, x: Tensor) -> Tensor:
    """The layer on one user's tokens (n, E), head by head and token by token."""
    u, v, q, k = layer.uvqk(layer.norm(x)).chunk(4, dim=1)
    heads = []
    for head in range(layer.heads):
        part = slice(head * layer.head_size, (head + 1) * layer.head_size)
        rows = []
        for i in range(len(x)):
            seen = [j for j in range(i) if j < len(x) - CANDIDATES] + [i]
            scores = F.silu(k[seen, part] @ q[i, part] / layer.head_size**0.5) / 9
            rows.append(scores @ v[seen, part])
        heads.append(torch.stack(rows))
    attended = torch.cat(heads, dim=1)
    u = F.silu(u)
    return x + layer.output(torch.cat([u, attended, u * layer.attention_norm(attended)], dim=1))
