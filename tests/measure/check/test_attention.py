"""The reference's attention in pieces: the same numbers and gradients, with less memory."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from classifier import check, has_a_wrong_gradient, with_network
from torch import Tensor, nn
from torch.nn import functional as F
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from torchzoo.case import Mode
from torchzoo.measure.check import reference
from torchzoo.measure.check.reference import attention_in_pieces
from torchzoo.record import CheckStatus

BATCH, HEADS, QUERIES, KEYS, DIM = 2, 4, 37, 53, 8
A_ROW = BATCH * HEADS * KEYS * 8  # bytes of the scores of one query


def inputs(key_heads: int = HEADS, keys: int = KEYS) -> tuple[Tensor, Tensor, Tensor]:
    torch.manual_seed(0)
    shapes = ((BATCH, HEADS, QUERIES, DIM), (BATCH, key_heads, keys, DIM), (BATCH, key_heads, keys, DIM))
    query, key, value = (torch.randn(shape, dtype=torch.float64, requires_grad=True) for shape in shapes)
    return query, key, value


def with_gradients(tensors: tuple[Tensor, Tensor, Tensor], **options: Any) -> list[Tensor]:
    query, key, value = tensors
    found = F.scaled_dot_product_attention(query, key, value, **options)
    weights = torch.linspace(-1, 1, found.numel(), dtype=found.dtype).view_as(found)
    return [found, *torch.autograd.grad((found * weights).sum(), tensors)]


class Largest(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """The bytes of the largest tensor that any operator makes."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.bytes = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        made = func(*args, **(kwargs or {}))
        self.bytes = max([self.bytes, *(one.nbytes for one in tree_leaves(made) if isinstance(one, Tensor))])
        return made


@pytest.mark.parametrize("rows", [1, 36])
@pytest.mark.parametrize(
    "options",
    [
        {},
        {"is_causal": True},
        {"scale": 0.3},
        {"attn_mask": torch.arange(QUERIES)[:, None] >= torch.arange(KEYS)},
        {"attn_mask": torch.randn(BATCH, 1, QUERIES, KEYS, dtype=torch.float64)},
        {"attn_mask": (torch.arange(KEYS) < 11).expand(1, KEYS)},
        {"attn_mask": (torch.arange(KEYS) < 11).expand(BATCH, 1, 1, KEYS)},
    ],
    ids=["plain", "causal", "scale", "mask", "mask of floats", "mask of keys", "mask of keys in four dimensions"],
)
def test_pieces_give_the_same_numbers_and_gradients(rows: int, options: dict[str, Any]) -> None:
    whole = with_gradients(inputs(), **options)
    with attention_in_pieces(rows * A_ROW):
        pieces = with_gradients(inputs(), **options)
    for one, other in zip(pieces, whole, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-12, atol=1e-12)


def test_heads_may_share_keys() -> None:
    whole = with_gradients(inputs(key_heads=2), enable_gqa=True)
    with attention_in_pieces(3 * A_ROW):
        pieces = with_gradients(inputs(key_heads=2), enable_gqa=True)
    for one, other in zip(pieces, whole, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-12, atol=1e-12)


def test_no_operator_makes_all_scores_in_the_forward_or_the_backward_pass() -> None:
    tensors = inputs(keys=4096)
    all_scores = QUERIES * BATCH * HEADS * 4096 * 8
    with sdpa_kernel(SDPBackend.MATH):  # what fp64 has on a GPU
        with Largest() as whole:
            with_gradients(tensors)
        with attention_in_pieces(all_scores // 16), Largest() as pieces:
            with_gradients(tensors)
    assert whole.bytes == all_scores
    assert pieces.bytes < all_scores // 4


def test_the_backward_pass_keeps_no_scores() -> None:
    kept = 0

    def keep(tensor: Tensor) -> Tensor:
        nonlocal kept
        kept = max(kept, tensor.nbytes)
        return tensor

    query, key, value = inputs(keys=4096)
    hooks = torch.autograd.graph.saved_tensors_hooks(keep, lambda one: one)
    with sdpa_kernel(SDPBackend.MATH), attention_in_pieces(2**20), hooks:
        F.scaled_dot_product_attention(query, key, value).sum()
    assert kept <= key.nbytes


def test_small_ones_dropout_and_what_pytorch_refuses_are_left_to_pytorch(monkeypatch: pytest.MonkeyPatch) -> None:
    calls = []
    own = F.scaled_dot_product_attention

    def spy(query: Tensor, *arguments: Any, **options: Any) -> Tensor:
        calls.append(query.shape[-2])
        return own(query, *arguments, **options)

    monkeypatch.setattr(F, "scaled_dot_product_attention", spy)
    with attention_in_pieces():
        F.scaled_dot_product_attention(*inputs())
    with attention_in_pieces(A_ROW):
        F.scaled_dot_product_attention(*inputs(), dropout_p=0.1)
    assert calls == [QUERIES, QUERIES]
    mask = torch.ones(QUERIES, KEYS, dtype=torch.bool)
    with attention_in_pieces(A_ROW), pytest.raises(RuntimeError, match="is_causal"):
        F.scaled_dot_product_attention(*inputs(), attn_mask=mask, is_causal=True)
    assert F.scaled_dot_product_attention is spy  # put back, after an error too


def test_pytorchs_own_modules_are_reached() -> None:
    torch.manual_seed(0)
    layer = nn.MultiheadAttention(16, 2, batch_first=True, dtype=torch.float64)
    x = torch.randn(2, 33, 16, dtype=torch.float64, requires_grad=True)
    whole = layer(x, x, x, need_weights=False)[0]
    with attention_in_pieces(1), Largest() as pieces:
        found = layer(x, x, x, need_weights=False)[0]
    torch.testing.assert_close(found, whole, rtol=1e-12, atol=1e-12)
    assert pieces.bytes < 2 * 2 * 33 * 33 * 8


class _Attending(nn.Module):
    """Attention over the six numbers of an input, with eight channels."""

    def __init__(self) -> None:
        super().__init__()
        self.read, self.write = nn.Linear(1, 24), nn.Linear(48, 3)

    def forward(self, x: Tensor) -> Tensor:
        query, key, value = self.read(x[..., None])[:, None].chunk(3, dim=-1)
        return self.write(F.scaled_dot_product_attention(query, key, value).flatten(1))  # type: ignore[no-any-return]


Attending = with_network(_Attending)


def test_a_reference_whose_scores_do_not_fit_judges(
    monkeypatch: pytest.MonkeyPatch, backend: Callable[..., str]
) -> None:
    own = F.scaled_dot_product_attention

    def of_a_small_device(query: Tensor, *arguments: Any, **options: Any) -> Tensor:
        if query.dtype is torch.float64 and query.shape[-2] > 2:
            raise torch.OutOfMemoryError("no GiB free")
        return own(query, *arguments, **options)

    monkeypatch.setattr(F, "scaled_dot_product_attention", of_a_small_device)
    found = check(Attending, Mode.TRAIN)
    assert found.status is CheckStatus.REFERENCE_FAILED
    assert found.reason.startswith("in fp64 it raises OutOfMemoryError: no GiB free")
    monkeypatch.setattr(reference, "PIECE_BYTES", 2 * 8 * 6 * 8)  # two queries of eight images
    assert check(Attending, Mode.TRAIN, "aot_eager").status is CheckStatus.CORRECT
    assert check(Attending, Mode.TRAIN, backend(has_a_wrong_gradient)).status is CheckStatus.INCORRECT
