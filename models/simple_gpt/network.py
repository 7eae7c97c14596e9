"""LLaMA with a static cache.

Shape letters: B batch, T tokens, C width, H heads, D head width, L positions of the cache, V vocabulary size.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import torch
from torch import Tensor, nn

from .._shared.llama import Config, Llama
from .._shared.static_cache import StaticCache


class StaticLlama(Llama):
    """Tokens (B, T), the first of them at position `start`, to logits (B, T, V). `start` may be a tensor."""

    def __init__(self, config: Config, batch_size: int) -> None:
        super().__init__(config, partial(Attention, config, batch_size))

    def forward(self, tokens: Tensor, start: int | Tensor) -> Tensor:  # type: ignore[override]
        return super().forward(tokens, start + torch.arange(tokens.shape[1], device=tokens.device))

    def caches(self) -> list[StaticCache]:
        return [module for module in self.modules() if isinstance(module, StaticCache)]

    def fill(self, draw: Callable[..., Tensor]) -> None:
        """Put random values into the caches: `draw(*shape)`."""
        for cache in self.caches():
            cache.keys.copy_(draw(*cache.keys.shape))
            cache.values.copy_(draw(*cache.values.shape))

    def cache_bytes(self) -> int:
        return sum(cache.nbytes() for cache in self.caches())


class Attention(nn.Module):
    """Queries, keys and values come from one product, head by head, so that a rank can have the rows of its heads."""

    def __init__(self, config: Config, batch_size: int) -> None:
        super().__init__()
        c = config
        self.head_width = c.head_width
        self.query_key_value = nn.Linear(c.width, 3 * c.width, bias=False)
        self.output = nn.Linear(c.width, c.width, bias=False)
        self.cache = StaticCache(batch_size, c.heads, c.length, c.head_width)

    def forward(self, x: Tensor, turns: Tensor, positions: Tensor) -> Tensor:
        query, key, value = self.query_key_value(x).unflatten(2, (-1, 3, self.head_width)).unbind(3)  # (B, T, H, D)
        query, key = rotate(query, turns), rotate(key, turns)
        found = self.cache(query.transpose(1, 2), key.transpose(1, 2), value.transpose(1, 2), positions)
        output: Tensor = self.output(found.transpose(1, 2).flatten(2))
        return output


def rotate(x: Tensor, turns: Tensor) -> Tensor:
    """Turn pairs of neighbours in the last dimension of x (B, T, H, D) by the angles of `turns` (T, D / 2, 2)."""
    first, second = x.view(*x.shape[:3], -1, 2).unbind(-1)
    cosine, sine = turns.unsqueeze(1).unbind(-1)  # (T, 1, D / 2)
    turned = torch.stack([first * cosine - second * sine, first * sine + second * cosine], dim=-1)
    return turned.flatten(3).to(x.dtype)
