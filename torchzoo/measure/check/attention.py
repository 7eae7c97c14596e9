"""Attention in pieces: the reference at fp64 then needs no memory for all scores at once."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F
from torch.utils.checkpoint import checkpoint

#: The scores of a piece take so much memory at most, if they are of more than one query.
PIECE_BYTES = 2**30


@contextlib.contextmanager
def attention_in_pieces(piece_bytes: int | None = None) -> Iterator[None]:
    """Let `scaled_dot_product_attention` compute large scores piece by piece, those of some queries at a time.

    At fp64 PyTorch has no fused kernel. It writes the scores of all queries and keys, and keeps them for the backward
    pass. What a query gets depends on its own scores alone. So pieces give the same numbers, but for the order in which
    the gradients of keys and values are summed. The backward pass computes each piece once more. With dropout, nothing
    is changed.

    Args:
        piece_bytes: of the scores of a piece, at most; by default PIECE_BYTES.
    """
    most = PIECE_BYTES if piece_bytes is None else piece_bytes
    own: Callable[..., Tensor] = F.scaled_dot_product_attention

    def in_pieces(
        query: Tensor,
        key: Tensor,
        value: Tensor,
        attn_mask: Tensor | None = None,
        dropout_p: float = 0.0,
        is_causal: bool = False,  # noqa: FBT001, FBT002  PyTorch's
        **options: Any,
    ) -> Tensor:
        a_row = query.shape[:-2].numel() * key.shape[-2] * query.itemsize
        rows = max(1, most // max(1, a_row))
        if dropout_p or rows >= query.shape[-2] or (is_causal and attn_mask is not None):
            return own(query, key, value, attn_mask, dropout_p, is_causal, **options)
        pieces = []
        for start in range(0, query.shape[-2], rows):
            compute = partial(_piece, own, slice(start, start + rows), is_causal=is_causal, **options)
            pieces.append(
                checkpoint(compute, query, key, value, attn_mask, use_reentrant=False, preserve_rng_state=False)
            )
        return torch.cat(pieces, dim=-2)

    F.scaled_dot_product_attention = in_pieces  # type: ignore[assignment]
    try:
        yield
    finally:
        F.scaled_dot_product_attention = own


def _piece(
    own: Callable[..., Tensor],
    rows: slice,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    mask: Tensor | None,
    *,
    is_causal: bool,
    **options: Any,
) -> Tensor:
    """What these queries get. A causal mask begins at the upper left corner, as PyTorch's does."""
    piece = query[..., rows, :]
    if is_causal:
        places = torch.arange(rows.start, rows.start + piece.shape[-2], device=query.device)
        mask = torch.arange(key.shape[-2], device=query.device) <= places[:, None]
    elif mask is not None and mask.ndim > 1 and mask.shape[-2] > 1:
        mask = mask[..., rows, :]
    return own(piece, key, value, mask, **options)
