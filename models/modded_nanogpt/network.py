"""The GPT of modded-nanogpt (https://github.com/KellerJordan/modded-nanogpt, record of August 23, 2025).

What differs from GPT-2: rotary embeddings on half of each head, normalised queries and keys, squared ReLU (So et al.,
2021, arXiv:2109.08668), windows of two lengths and capped logits (Gemma Team, 2024, arXiv:2408.00118), embeddings that
are mixed into the values (after Zhou et al., 2024, arXiv:2410.17897), skips from the first half of the layers to the
second, a gate on each head, and normalisations without weights.

Shape letters: B batch, T tokens, C width, H heads, D head width, V vocabulary size.
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
        """Which tokens each one sees (B, 1, T, T): itself and those before it, in its document and the last blocks."""
        places = torch.arange(tokens.shape[1], device=tokens.device)
        document = (tokens == self.config.document_start).cumsum(1)
        same_document = document.unsqueeze(2) == document.unsqueeze(1)
        blocks_back = (places // self.config.block).unsqueeze(1) - places // self.config.block
        causal = places.unsqueeze(1) >= places
        return (same_document & causal & (blocks_back < window_blocks)).unsqueeze(1)


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
        query, key, value = projected.transpose(1, 3).unbind(2)  # (B, H, T, D) each
        query, key = self.rotate(norm(query)), self.rotate(norm(key))
        value = value_mixing[0] * value
        if values is not None:
            value = value + value_mixing[1] * values.view(*x.shape[:2], c.heads, c.head_width).transpose(1, 2)
        found = F.scaled_dot_product_attention(query, key, value, attn_mask=visible, scale=c.score_scale)
        gates = torch.sigmoid(self.gate(x[..., : c.gated_by]))  # (B, T, H)
        gated = found.transpose(1, 2) * gates.unsqueeze(3)
        return F.linear(gated.flatten(2), self.matrices[3])

    def rotate(self, x: Tensor) -> Tensor:
        """x (B, H, T, D), turned by its position; the second half of the pairs is not turned."""
        first, second = x.chunk(2, dim=-1)
        turned = [first * self.cosines + second * self.sines, second * self.cosines - first * self.sines]
        return torch.cat(turned, dim=-1).to(x.dtype)


def norm(x: Tensor) -> Tensor:
    return F.rms_norm(x, (x.shape[-1],))


def draw(weight: Tensor, inputs: int) -> None:
    """Uniform numbers with a deviation of half of 1 / sqrt(inputs)."""
    bound = 3**0.5 * 0.5 * inputs**-0.5
    nn.init.uniform_(weight, -bound, bound)
