"""The GPT of modded-nanogpt (https://github.com/KellerJordan/modded-nanogpt, record of August 23, 2025).

What differs from GPT-2: rotary embeddings on half of each head, normalised queries and keys, squared ReLU (So et al.,
2021, arXiv:2109.08668), windows of two lengths and capped logits (Gemma Team, 2024, arXiv:2408.00118), embeddings that
are mixed into the values (after Zhou et al., 2024, arXiv:2410.17897), skips from the first half of the layers to the
second, a gate on each head, and normalisations without weights.

Attention goes block by block: the queries of a block meet the keys of their window, which are the same block and those
right before it, and no others.

Shape letters: B batch, T tokens, C width, H heads, D head width, N blocks of tokens, Q tokens of a block, K tokens of a
window.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional as F


@dataclass(frozen=True, kw_only=True)
class Config:
    vocabulary_size: int = 50_304  # 50,257 rounded up to a multiple of 128
    length: int = 6144
    layers: int = 12
    heads: int = 6
    width: int = 768
    block: int = 128  # windows are counted in blocks of so many tokens
    long_window: int = 7
    short_window: int = 3
    layers_with_long_window: tuple[int, ...] = (0, 4, 7, 11)
    layer_without_attention: int = 7
    value_tables: int = 3  # for as many first layers, and again for as many last ones
    gated_by: int = 12  # so many of the first channels decide how much each head counts
    score_scale: float = 0.12
    document_start: int = 50_256

    @property
    def head_width(self) -> int:
        return self.width // self.heads

    def value_table(self, layer: int) -> int | None:
        """The table of value embeddings that a layer mixes in."""
        from_end = layer - (self.layers - self.value_tables)
        return layer if layer < self.value_tables else from_end if from_end >= 0 else None


class ModdedGPT(nn.Module):
    """Tokens and the tokens after them, both (B, T), to the mean cross entropy."""

    def __init__(self, config: Config) -> None:
        super().__init__()
        c = self.config = config
        self.token = nn.Embedding(c.vocabulary_size, c.width)
        self.value_tables = nn.ModuleList(nn.Embedding(c.vocabulary_size, c.width) for _ in range(c.value_tables))
        self.blocks = nn.ModuleList(Block(c, layer) for layer in range(c.layers))
        self.head = nn.Linear(c.width, c.vocabulary_size, bias=False)
        self.skips = nn.Parameter(torch.ones(c.layers // 2))
        self.mixing = nn.Parameter(torch.tensor([1.0, 0.0]).repeat(c.layers, 1))  # of x and the embedding
        self.value_mixing = nn.Parameter(torch.full((c.layers, 2), 0.5))
        draw(self.head.weight, c.width)

    def forward(self, tokens: Tensor, targets: Tensor) -> Tensor:
        c = self.config
        long, short = (self.visible(tokens, blocks) for blocks in (c.long_window, c.short_window))
        tables = [table(tokens) for table in self.value_tables]
        embedded = x = norm(self.token(tokens))  # (B, T, C)
        earlier: list[Tensor] = []
        for layer, block in enumerate(self.blocks):
            if layer >= c.layers // 2:
                x = x + self.skips[layer - c.layers // 2] * earlier.pop()
            table = c.value_table(layer)
            values = None if table is None else tables[table]
            x = self.mixing[layer, 0] * x + self.mixing[layer, 1] * embedded
            x = block(x, values, self.value_mixing[layer], long if layer in c.layers_with_long_window else short)
            if layer < c.layers // 2:
                earlier.append(x)
        logits = self.head(norm(x))
        logits = 30 * torch.sigmoid(logits.to(torch.promote_types(logits.dtype, torch.float32)) / 7.5)
        return F.cross_entropy(logits.flatten(0, 1), targets.flatten())

    def visible(self, tokens: Tensor, window_blocks: int) -> Tensor:
        """Which tokens of its window each token sees (BN, 1, Q, K): itself and those before it, in its document."""
        block = self.config.block
        places = torch.arange(tokens.shape[1], device=tokens.device).expand_as(tokens)
        documents = (tokens == self.config.document_start).cumsum(1)
        query, key = [], []
        for x in (places[..., None, None], documents[..., None, None]):  # (B, T, 1, 1)
            query.append(in_blocks(x, block))  # (BN, 1, Q, 1)
            key.append(in_windows(x, block, window_blocks, before=-1).mT)  # (BN, 1, 1, K)
        return (query[0] >= key[0]) & (query[1] == key[1])  # what is before the first token is in no document


class Block(nn.Module):
    """x (B, T, C) to the same shape."""

    def __init__(self, config: Config, layer: int) -> None:
        super().__init__()
        c = config
        self.attention = Attention(c) if layer != c.layer_without_attention else None
        self.inner = nn.Parameter(torch.empty(c.width, 4 * c.width))
        self.outer = nn.Parameter(torch.empty(c.width, 4 * c.width))  # the same shape, for Muon
        draw(self.inner, c.width)
        draw(self.outer, c.width)

    def forward(self, x: Tensor, values: Tensor | None, value_mixing: Tensor, visible: Tensor) -> Tensor:
        if self.attention is not None:
            x = x + self.attention(norm(x), values, value_mixing, visible)
        hidden = F.relu(F.linear(norm(x), self.inner.T)).square()
        return x + F.linear(hidden, self.outer)


class Attention(nn.Module):
    cosines: Tensor
    sines: Tensor

    def __init__(self, config: Config) -> None:
        super().__init__()
        c = self.config = config
        self.matrices = nn.Parameter(torch.empty(4, c.width, c.width))  # of query, key, value and output
        self.gate = nn.Linear(c.gated_by, c.heads, bias=False)
        draw(self.matrices, c.width)
        draw(self.gate.weight, c.gated_by)
        turning = (1 / 1024) ** torch.linspace(0, 1, c.head_width // 4)
        frequencies = torch.cat([turning, torch.zeros(c.head_width // 4)])
        angles = torch.outer(torch.arange(c.length), frequencies)  # (T, D / 2)
        self.register_buffer("cosines", angles.cos(), persistent=False)
        self.register_buffer("sines", angles.sin(), persistent=False)

    def forward(self, x: Tensor, values: Tensor | None, value_mixing: Tensor, visible: Tensor) -> Tensor:
        c = self.config
        projected = F.linear(x, self.matrices[:3].flatten(0, 1)).view(*x.shape[:2], 3, c.heads, c.head_width)
        query, key, value = projected.unbind(2)  # (B, T, H, D) each
        query, key = self.rotate(norm(query)), self.rotate(norm(key))
        value = value_mixing[0] * value
        if values is not None:
            value = value + value_mixing[1] * values.view_as(value)
        window_blocks = visible.shape[-1] // c.block
        found = F.scaled_dot_product_attention(
            in_blocks(query, c.block),  # (BN, H, Q, D)
            in_windows(key, c.block, window_blocks),  # (BN, H, K, D)
            in_windows(value, c.block, window_blocks),
            attn_mask=visible,
            scale=c.score_scale,
        )
        gates = torch.sigmoid(self.gate(x[..., : c.gated_by]))  # (B, T, H)
        gated = found.transpose(1, 2).reshape(query.shape) * gates.unsqueeze(3)
        return F.linear(gated.flatten(2), self.matrices[3])

    def rotate(self, x: Tensor) -> Tensor:
        """x (B, T, H, D), turned by its position; the second half of the pairs is not turned."""
        first, second = x.chunk(2, dim=-1)
        cosines, sines = self.cosines.unsqueeze(1), self.sines.unsqueeze(1)  # (T, 1, D / 2)
        turned = [first * cosines + second * sines, second * cosines - first * sines]
        return torch.cat(turned, dim=-1).to(x.dtype)


def in_blocks(x: Tensor, block: int) -> Tensor:
    """x (B, T, H, D) to (BN, H, Q, D)."""
    return x.reshape(-1, block, *x.shape[2:]).transpose(1, 2)


def in_windows(x: Tensor, block: int, window_blocks: int, before: int = 0) -> Tensor:
    """x (B, T, H, D) to (BN, H, K, D): for each block its last `window_blocks` blocks, itself included.

    `before` stands where a window reaches back beyond the first token.
    """
    padded = F.pad(x, (0, 0, 0, 0, (window_blocks - 1) * block, 0), value=before)
    blocks = padded.view(len(x), -1, block, *x.shape[2:])
    count = x.shape[1] // block
    windows = torch.cat([blocks[:, first : first + count] for first in range(window_blocks)], dim=2)
    return windows.flatten(0, 1).transpose(1, 2)


def norm(x: Tensor) -> Tensor:
    return F.rms_norm(x, (x.shape[-1],))


def draw(weight: Tensor, inputs: int) -> None:
    """Uniform numbers with a deviation of half of 1 / sqrt(inputs)."""
    bound = 3**0.5 * 0.5 * inputs**-0.5
    nn.init.uniform_(weight, -bound, bound)
