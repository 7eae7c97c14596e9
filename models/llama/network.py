"""LLaMA with a cache that is sliced, and with complex rotations.

Shape letters: B batch, T tokens, C width, H heads, D head width, L positions of the cache, V vocabulary size.
"""

from __future__ import annotations

from functools import partial

import torch
from torch import Tensor, nn

from .._shared.llama import Config, Llama


class SlicedLlama(Llama):
    """Tokens (B, T), the first of them at position `start`, to the logits (B, V) after the last one."""

    def __init__(self, config: Config, batch_size: int) -> None:
        super().__init__(config, partial(Attention, config, batch_size))

    def forward(self, tokens: Tensor, start: int) -> Tensor:  # type: ignore[override]
        return super().forward(tokens, slice(start, start + tokens.shape[1]))


class Attention(nn.Module):
    keys: Tensor
    values: Tensor

    def __init__(self, config: Config, batch_size: int) -> None:
        super().__init__()
        c = config
        self.shape = (c.heads, c.head_width)
        self.query, self.key, self.value, self.output = (nn.Linear(c.width, c.width, bias=False) for _ in range(4))
        for name in ("keys", "values"):
            self.register_buffer(name, torch.zeros(batch_size, c.length, *self.shape), persistent=False)

    def forward(self, x: Tensor, turns: Tensor, positions: slice) -> Tensor:
        query, key, value = (part(x).unflatten(2, self.shape) for part in (self.query, self.key, self.value))
        query, key = rotate(query, turns), rotate(key, turns)  # (B, T, H, D)
        self.keys[:, positions] = key.to(self.keys.dtype)
        self.values[:, positions] = value.to(self.values.dtype)
        keys, values = (held[:, : positions.stop].transpose(1, 2) for held in (self.keys, self.values))  # (B, H, L, D)
        scores = query.transpose(1, 2) @ keys.transpose(2, 3) * self.shape[1] ** -0.5
        places = torch.arange(positions.stop, device=x.device)
        later = places > places[positions].unsqueeze(1)  # (T, L)
        wide = torch.promote_types(scores.dtype, torch.float32)
        weights = scores.masked_fill(later, float("-inf")).softmax(dim=-1, dtype=wide).to(scores.dtype)
        output: Tensor = self.output((weights @ values).transpose(1, 2).flatten(2))
        return output


def rotate(x: Tensor, turns: Tensor) -> Tensor:
    """Pairs of neighbours in the last dimension of x (B, T, H, D) are complex numbers. Each is turned by its angle."""
    wide = torch.promote_types(x.dtype, torch.float32)
    pairs = torch.view_as_complex(x.to(wide).view(*x.shape[:3], -1, 2))
    turned = pairs * torch.view_as_complex(turns.to(wide)).unsqueeze(1)
    return torch.view_as_real(turned).flatten(3).to(x.dtype)
