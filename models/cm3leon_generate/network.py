"""A decoder as metaseq has it (Zhang et al., 2022, arXiv:2205.01068): normalised first, ReLU, learned positions.

Shape letters: B batch, T tokens, C width, H heads, D head width, V vocabulary size.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from .._shared.static_cache import StaticCache


@dataclass(frozen=True, kw_only=True)
class Config:
    vocabulary_size: int = 2048
    layers: int = 24
    heads: int = 16
    width: int = 1536
    longest: int = 2048  # positions that have an embedding


class Decoder(nn.Module):
    """Tokens (B, T), the first of them at position `start`, to the logits (B, V) of what follows the last one.

    Args:
        config: the sizes.
        batch_size: B.
        length: how many tokens of a sequence the caches hold.
    """

    def __init__(self, config: Config, batch_size: int, length: int) -> None:
        super().__init__()
        c = config
        self.token = nn.Embedding(c.vocabulary_size, c.width)
        self.position = nn.Embedding(c.longest, c.width)
        self.blocks = nn.ModuleList(Block(c, batch_size, length) for _ in range(c.layers))
        self.norm = nn.LayerNorm(c.width)
        for table in (self.token, self.position):
            nn.init.normal_(table.weight, std=c.width**-0.5)

    def forward(self, tokens: Tensor, start: int | Tensor) -> Tensor:
        positions = start + torch.arange(tokens.shape[1], device=tokens.device)
        x = self.token(tokens) + self.position(positions)  # (B, T, C)
        for block in self.blocks:
            x = block(x, positions)
        return F.linear(self.norm(x[:, -1]), self.token.weight)


class Block(nn.Module):
    """x (B, T, C) to the same shape."""

    def __init__(self, config: Config, batch_size: int, length: int) -> None:
        super().__init__()
        c = config
        self.heads = c.heads
        self.attention_norm = nn.LayerNorm(c.width)
        self.query, self.key, self.value, self.output = (nn.Linear(c.width, c.width) for _ in range(4))
        self.cache = StaticCache(batch_size, c.heads, length, c.width // c.heads)
        self.feed_forward_norm = nn.LayerNorm(c.width)
        self.inner = nn.Linear(c.width, 4 * c.width)
        self.outer = nn.Linear(4 * c.width, c.width)

    def forward(self, x: Tensor, positions: Tensor) -> Tensor:
        normed = self.attention_norm(x)
        query, key, value = (
            part(normed).unflatten(2, (self.heads, -1)).transpose(1, 2) for part in (self.query, self.key, self.value)
        )  # (B, H, T, D)
        x = x + self.output(self.cache(query, key, value, positions).transpose(1, 2).flatten(2))
        summed: Tensor = x + self.outer(F.relu(self.inner(self.feed_forward_norm(x))))
        return summed
