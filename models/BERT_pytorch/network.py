"""BERT (Devlin et al., 2018, arXiv:1810.04805) with its two pre-training heads.

It departs from the paper as the implementation of 115,805,991 parameters does: normalisation before each sublayer and
none after the last, one more dropout behind each block, sines and cosines for positions, a third segment for padding,
heads of one linear layer each.

Shape letters: B batch, T tokens, C width, H heads, D head width, V vocabulary size.
"""

from dataclasses import dataclass
from typing import NamedTuple

from torch import Tensor, nn
from torch.nn import functional as F

from .._shared.transformer import sinusoids


@dataclass(frozen=True, kw_only=True)
class Config:
    vocabulary_size: int = 20005
    segments: int = 3
    length: int = 128
    width: int = 768
    layers: int = 12
    heads: int = 12
    dropout: float = 0.1


class Logits(NamedTuple):
    is_next: Tensor  # (B, 2)
    tokens: Tensor  # (B, T, V)


class Bert(nn.Module):
    """Tokens and segments, both (B, T) and 0 where there is padding, to the logits of both heads."""

    positions: Tensor

    def __init__(self, config: Config) -> None:
        super().__init__()
        c = config
        self.token = nn.Embedding(c.vocabulary_size, c.width, padding_idx=0)
        self.segment = nn.Embedding(c.segments, c.width, padding_idx=0)
        self.register_buffer("positions", sinusoids(c.length, c.width), persistent=False)
        self.dropout = nn.Dropout(c.dropout)
        self.blocks = nn.ModuleList(Block(c) for _ in range(c.layers))
        self.is_next = nn.Linear(c.width, 2)
        self.masked_tokens = nn.Linear(c.width, c.vocabulary_size)

    def forward(self, tokens: Tensor, segments: Tensor) -> Logits:
        is_padding = (tokens == 0)[:, None, None]  # (B, 1, 1, T)
        x = self.dropout(self.token(tokens) + self.segment(segments) + self.positions)  # (B, T, C)
        for block in self.blocks:
            x = block(x, is_padding)
        return Logits(self.is_next(x[:, 0]), self.masked_tokens(x))


class Block(nn.Module):
    """x (B, T, C) to the same shape."""

    def __init__(self, config: Config) -> None:
        super().__init__()
        c = config
        self.attention_norm = nn.LayerNorm(c.width)
        self.attention = Attention(c)
        self.inner_norm = nn.LayerNorm(c.width)
        self.inner = nn.Linear(c.width, 4 * c.width)
        self.outer = nn.Linear(4 * c.width, c.width)
        self.dropout = nn.Dropout(c.dropout)

    def forward(self, x: Tensor, is_padding: Tensor) -> Tensor:
        x = x + self.dropout(self.attention(self.attention_norm(x), is_padding))
        inner = self.dropout(F.gelu(self.inner(self.inner_norm(x))))
        x = x + self.dropout(self.outer(inner))
        return self.dropout(x)


class Attention(nn.Module):
    def __init__(self, config: Config) -> None:
        super().__init__()
        c = config
        self.heads = c.heads
        self.query = nn.Linear(c.width, c.width)
        self.key = nn.Linear(c.width, c.width)
        self.value = nn.Linear(c.width, c.width)
        self.output = nn.Linear(c.width, c.width)
        self.dropout = nn.Dropout(c.dropout)

    def forward(self, x: Tensor, is_padding: Tensor) -> Tensor:
        query, key, value = (
            projection(x).unflatten(2, (self.heads, -1)).transpose(1, 2)  # (B, H, T, D)
            for projection in (self.query, self.key, self.value)
        )
        scores = query @ key.transpose(2, 3) / query.shape[3] ** 0.5  # (B, H, T, T)
        weights = self.dropout(scores.masked_fill(is_padding, float("-inf")).softmax(dim=3))
        output: Tensor = self.output((weights @ value).transpose(1, 2).flatten(2))
        return output
