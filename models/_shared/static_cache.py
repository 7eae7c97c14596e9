"""Attention to keys and values of earlier positions, kept in a cache of fixed size."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional as F


class StaticCache(nn.Module):
    """Keys and values (B, H, L, D) of one layer, with a place for each of L positions, written in place.

    They are buffers, so they move and are cast with the network. All calls with the same number of tokens have the same
    shapes: attention looks at all places, and a mask hides those that come later.
    """

    keys: Tensor
    values: Tensor

    def __init__(self, batch_size: int, heads: int, length: int, head_width: int) -> None:
        super().__init__()
        for name in ("keys", "values"):
            self.register_buffer(name, torch.zeros(batch_size, heads, length, head_width), persistent=False)

    def forward(self, query: Tensor, key: Tensor, value: Tensor, positions: Tensor) -> Tensor:
        """Query, key and value (B, H, T, D) of `positions` (T,) to what each attends to (B, H, T, D)."""
        self.keys.index_copy_(2, positions, key.to(self.keys.dtype))
        self.values.index_copy_(2, positions, value.to(self.values.dtype))
        places = torch.arange(self.keys.shape[2], device=positions.device)
        visible = places <= positions.unsqueeze(1)  # (T, L)
        return F.scaled_dot_product_attention(query, self.keys, self.values, attn_mask=visible)

    def nbytes(self) -> int:
        return self.keys.nbytes + self.values.nbytes
