"""GPT-2 (Radford et al., 2019, "Language Models are Unsupervised Multitask Learners") as nanoGPT has it.

https://github.com/karpathy/nanoGPT: biases are an option, the loss belongs to the forward pass, attention is fused.

Shape letters: B batch, T tokens, C width, H heads, D head width, V vocabulary size.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional as F


@dataclass(frozen=True, kw_only=True)
class Config:
    vocabulary_size: int
    length: int
    layers: int
    heads: int
    width: int
    dropout: float
    bias: bool = False  # of linear layers and normalisations


class GPT(nn.Module):
    """Tokens (B, T) to the logits (B, T, V) of the next ones and, given these (B, T), the loss, else None.

    With `last_only`, the logits are (B, 1, V), those of the last token.
    """

    def __init__(self, config: Config) -> None:
        super().__init__()
        c = config
        self.token = nn.Embedding(c.vocabulary_size, c.width)
        self.position = nn.Embedding(c.length, c.width)
        self.dropout = nn.Dropout(c.dropout)
        self.blocks = nn.ModuleList(Block(c) for _ in range(c.layers))
        self.norm = nn.LayerNorm(c.width, bias=c.bias)
        self.head = nn.Linear(c.width, c.vocabulary_size, bias=False)
        self.head.weight = self.token.weight
        self.initialise(2 * c.layers)

    def initialise(self, residual_sums: int) -> None:
        """Normal weights of deviation 0.02, smaller where a residual sum takes the result; biases are zero."""
        for name, parameter in self.named_parameters():
            if parameter.ndim == 2:
                scale = residual_sums**-0.5 if name.endswith("output.weight") else 1.0
                nn.init.normal_(parameter, std=0.02 * scale)
            elif name.endswith("bias"):
                nn.init.zeros_(parameter)

    def forward(
        self, tokens: Tensor, targets: Tensor | None = None, *, last_only: bool = False
    ) -> tuple[Tensor, Tensor | None]:
        places = torch.arange(tokens.shape[1], device=tokens.device)
        x = self.dropout(self.token(tokens) + self.position(places))  # (B, T, C)
        for block in self.blocks:
            x = block(x)
        logits = self.head(self.norm(x[:, -1:] if last_only else x))
        if targets is None:
            return logits, None
        return logits, F.cross_entropy(logits.flatten(0, 1), targets.flatten())


class Block(nn.Module):
    """x (B, T, C) to the same shape."""

    def __init__(self, config: Config) -> None:
        super().__init__()
        c = config
        self.attention_norm = nn.LayerNorm(c.width, bias=c.bias)
        self.attention = CausalAttention(c)
        self.feed_forward_norm = nn.LayerNorm(c.width, bias=c.bias)
        self.feed_forward = FeedForward(c)

    def forward(self, x: Tensor) -> Tensor:
        x = x + self.attention(self.attention_norm(x))
        summed: Tensor = x + self.feed_forward(self.feed_forward_norm(x))
        return summed


class CausalAttention(nn.Module):
    def __init__(self, config: Config) -> None:
        super().__init__()
        c = config
        self.heads = c.heads
        self.query_key_value = nn.Linear(c.width, 3 * c.width, bias=c.bias)
        self.output = nn.Linear(c.width, c.width, bias=c.bias)
        self.dropout = nn.Dropout(c.dropout)

    def forward(self, x: Tensor) -> Tensor:
        qkv = self.query_key_value(x).unflatten(2, (3, self.heads, -1))  # (B, T, 3, H, D)
        query, key, value = qkv.permute(2, 0, 3, 1, 4)  # (B, H, T, D) each
        dropout = self.dropout.p if self.training else 0.0
        x = F.scaled_dot_product_attention(query, key, value, dropout_p=dropout, is_causal=True)
        output: Tensor = self.dropout(self.output(x.transpose(1, 2).flatten(2)))
        return output


class FeedForward(nn.Module):
    def __init__(self, config: Config) -> None:
        super().__init__()
        c = config
        self.inner = nn.Linear(c.width, 4 * c.width, bias=c.bias)
        self.output = nn.Linear(4 * c.width, c.width, bias=c.bias)
        self.dropout = nn.Dropout(c.dropout)

    def forward(self, x: Tensor) -> Tensor:
        output: Tensor = self.dropout(self.output(F.gelu(self.inner(x))))
        return output
