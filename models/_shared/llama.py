"""LLaMA (Touvron et al., 2023, arXiv:2302.13971), written plainly. How attention keeps its cache is up to a model.

Shape letters: B batch, T tokens, C width, H heads, D head width, L positions of the cache, V vocabulary size.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional as F


@dataclass(frozen=True, kw_only=True)
class Config:
    layers: int
    heads: int
    width: int
    length: int  # of the cache
    vocabulary_size: int = 32_000
    multiple: int = 256  # the feed-forward width is rounded up to one of this
    epsilon: float = 1e-5
    last_only: bool = False  # only the logits of the last token are computed

    @property
    def head_width(self) -> int:
        return self.width // self.heads

    @property
    def inner_width(self) -> int:
        """Two thirds of four times the width, since the feed-forward part has three matrices instead of two."""
        return -(-(8 * self.width // 3) // self.multiple) * self.multiple


class Llama(nn.Module):
    """Tokens (B, T) at `positions` to logits (B, T, V), or (B, V) with `last_only`.

    Args:
        config: the sizes.
        attention: makes the attention of a layer. It is called with x (B, T, C), the rotations (T, D / 2, 2) of the
            positions, and the positions.
    """

    rotations: Tensor

    def __init__(self, config: Config, attention: Callable[[], nn.Module]) -> None:
        super().__init__()
        c = self.config = config
        self.token = nn.Embedding(c.vocabulary_size, c.width)
        self.blocks = nn.ModuleList(Block(c, attention()) for _ in range(c.layers))
        self.norm = nn.RMSNorm(c.width, eps=c.epsilon)
        self.head = nn.Linear(c.width, c.vocabulary_size, bias=False)
        self.register_buffer("rotations", rotations(c.length, c.head_width), persistent=False)

    def forward(self, tokens: Tensor, positions: Tensor | slice) -> Tensor:
        x = self.token(tokens)
        turns = self.rotations[positions]
        for block in self.blocks:
            x = block(x, turns, positions)
        logits: Tensor = self.head(self.norm(x[:, -1] if self.config.last_only else x))
        return logits


class Block(nn.Module):
    """x (B, T, C) to the same shape."""

    def __init__(self, config: Config, attention: nn.Module) -> None:
        super().__init__()
        self.attention_norm = nn.RMSNorm(config.width, eps=config.epsilon)
        self.attention = attention
        self.feed_forward_norm = nn.RMSNorm(config.width, eps=config.epsilon)
        self.feed_forward = FeedForward(config)

    def forward(self, x: Tensor, turns: Tensor, positions: Tensor | slice) -> Tensor:
        x = x + self.attention(self.attention_norm(x), turns, positions)
        summed: Tensor = x + self.feed_forward(self.feed_forward_norm(x))
        return summed


class FeedForward(nn.Module):
    """SwiGLU (Shazeer, 2020, arXiv:2002.05202)."""

    def __init__(self, config: Config) -> None:
        super().__init__()
        self.gate = nn.Linear(config.width, config.inner_width, bias=False)
        self.inner = nn.Linear(config.width, config.inner_width, bias=False)
        self.outer = nn.Linear(config.inner_width, config.width, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        output: Tensor = self.outer(F.silu(self.gate(x)) * self.inner(x))
        return output


def rotations(length: int, head_width: int) -> Tensor:
    """Cosines and sines (length, head_width / 2, 2) of the rotary embedding (Su et al., 2021, arXiv:2104.09864)."""
    frequencies = 10_000.0 ** (-torch.arange(0, head_width, 2) / head_width)
    angles = torch.outer(torch.arange(length), frequencies)
    return torch.stack([angles.cos(), angles.sin()], dim=-1)
