"""The Transformer (Vaswani et al., 2017, arXiv:1706.03762) as translation and speech recognition use it.

Normalisation follows each residual sum, as in the paper. `Memory` computes once the keys and values that the decoder's
layers look up in the encoder's output, so that decoding token by token does not compute them again.

Shape letters: B batch (in decoding, of hypotheses), S source length, T target length, C width, H heads, D head width,
L length of the decoder's cache, V vocabulary size. A mask says what is hidden: True where a query must not look.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional as F


@dataclass(frozen=True, kw_only=True)
class Config:
    vocabulary_size: int  # of the target
    longest: int = 200  # sequences, in positions
    width: int = 512
    inner_width: int = 2048
    heads: int = 8
    layers: int = 6  # of the encoder, and of the decoder
    dropout: float = 0.1  # of embeddings, attention weights and every sublayer's result
    attention_bias: bool = True
    embedding_norm: bool = False  # layer normalisation of embedded tokens
    tied_projection: bool = False  # logits by the embedding's own weights


class KeysValues(NamedTuple):
    keys: Tensor  # (B, H, S, D)
    values: Tensor  # (B, H, S, D)


class KeyValue(nn.Module):
    """Keys and values of all heads, from x (B, S, C)."""

    def __init__(self, config: Config) -> None:
        super().__init__()
        self.heads = config.heads
        self.projection = nn.Linear(config.width, 2 * config.width, bias=config.attention_bias)

    def forward(self, x: Tensor) -> KeysValues:
        both = self.projection(x).unflatten(2, (2, self.heads, -1))  # (B, S, 2, H, D)
        return KeysValues(*both.permute(2, 0, 3, 1, 4))


class Attention(nn.Module):
    """Queries from x (B, T, C) attend to keys and values (B, H, S, D); `hidden` broadcasts to (B, H, T, S)."""

    def __init__(self, config: Config) -> None:
        super().__init__()
        c = config
        self.heads = c.heads
        self.query = nn.Linear(c.width, c.width, bias=c.attention_bias)
        self.dropout = nn.Dropout(c.dropout)
        self.output = nn.Linear(c.width, c.width, bias=c.attention_bias)

    def forward(self, x: Tensor, source: KeysValues, hidden: Tensor) -> Tensor:
        queries = self.query(x).unflatten(2, (self.heads, -1)).transpose(1, 2)  # (B, H, T, D)
        scores = queries @ source.keys.transpose(2, 3) / queries.shape[-1] ** 0.5  # (B, H, T, S)
        weights = self.dropout(scores.masked_fill(hidden, float("-inf")).softmax(dim=3))
        attended = (weights @ source.values).transpose(1, 2).flatten(2)
        output: Tensor = self.output(attended)
        return output


class FeedForward(nn.Module):
    def __init__(self, config: Config) -> None:
        super().__init__()
        self.inner = nn.Linear(config.width, config.inner_width)
        self.outer = nn.Linear(config.inner_width, config.width)

    def forward(self, x: Tensor) -> Tensor:
        output: Tensor = self.outer(F.relu(self.inner(x)))
        return output


class AddNorm(nn.Module):
    """Dropout of a sublayer's result, residual sum, layer normalisation."""

    def __init__(self, config: Config) -> None:
        super().__init__()
        self.dropout = nn.Dropout(config.dropout)
        self.norm = nn.LayerNorm(config.width)

    def forward(self, x: Tensor, result: Tensor) -> Tensor:
        normed: Tensor = self.norm(x + self.dropout(result))
        return normed


class EncoderLayer(nn.Module):
    """x (B, S, C) to the same shape."""

    def __init__(self, config: Config) -> None:
        super().__init__()
        self.key_value = KeyValue(config)
        self.attention = Attention(config)
        self.after_attention = AddNorm(config)
        self.feed_forward = FeedForward(config)
        self.after_feed_forward = AddNorm(config)

    def forward(self, x: Tensor, hidden: Tensor) -> Tensor:
        x = self.after_attention(x, self.attention(x, self.key_value(x), hidden))
        normed: Tensor = self.after_feed_forward(x, self.feed_forward(x))
        return normed


class DecoderLayer(nn.Module):
    """x (B, T, C) to the same shape; `own` is what `key_value` makes of x (and, in decoding, of what came before)."""

    def __init__(self, config: Config) -> None:
        super().__init__()
        self.key_value = KeyValue(config)
        self.attention = Attention(config)
        self.after_attention = AddNorm(config)
        self.memory_attention = Attention(config)
        self.after_memory_attention = AddNorm(config)
        self.feed_forward = FeedForward(config)
        self.after_feed_forward = AddNorm(config)

    def forward(
        self, x: Tensor, own: KeysValues, own_hidden: Tensor, memory: KeysValues, memory_hidden: Tensor
    ) -> Tensor:
        x = self.after_attention(x, self.attention(x, own, own_hidden))
        x = self.after_memory_attention(x, self.memory_attention(x, memory, memory_hidden))
        normed: Tensor = self.after_feed_forward(x, self.feed_forward(x))
        return normed


class Embedding(nn.Module):
    """Tokens (B, T) to (B, T, C): scaled embedding plus position, dropout, normalisation where the config has it."""

    positions: Tensor

    def __init__(self, vocabulary_size: int, config: Config) -> None:
        super().__init__()
        c = config
        self.scale = c.width**0.5
        self.token = nn.Embedding(vocabulary_size, c.width)
        self.register_buffer("positions", sinusoids(c.longest, c.width), persistent=False)
        self.dropout = nn.Dropout(c.dropout)
        self.norm = nn.LayerNorm(c.width) if c.embedding_norm else nn.Identity()
        nn.init.normal_(self.token.weight, std=c.width**-0.5)

    def forward(self, tokens: Tensor, position: Tensor | None = None) -> Tensor:
        """`position`, a tensor of no dimensions, is that of all tokens (B, 1); without it they count from 0."""
        place = self.positions[: tokens.shape[1]] if position is None else self.positions[position.unsqueeze(0)]
        x: Tensor = self.norm(self.dropout(self.token(tokens) * self.scale + place))
        return x


class EncoderLayers(nn.Module):
    """Embedded input (B, S, C) to the same shape."""

    def __init__(self, config: Config) -> None:
        super().__init__()
        self.layers = nn.ModuleList(EncoderLayer(config) for _ in range(config.layers))

    def forward(self, x: Tensor, hidden: Tensor) -> Tensor:
        for layer in self.layers:
            x = layer(x, hidden)
        return x


class TextEncoder(nn.Module):
    """Source tokens (B, S) and lengths (B,) to (B, S, C) and the mask that hides the padding."""

    def __init__(self, source_vocabulary_size: int, config: Config) -> None:
        super().__init__()
        self.embedding = Embedding(source_vocabulary_size, config)
        self.layers = EncoderLayers(config)

    def forward(self, tokens: Tensor, lengths: Tensor) -> tuple[Tensor, Tensor]:
        hidden = padding(lengths, tokens.shape[1])
        return self.layers(self.embedding(tokens), hidden), hidden


class Memory(nn.Module):
    """The encoder's output (B, S, C) to the keys and values that each layer of the decoder looks up."""

    def __init__(self, config: Config) -> None:
        super().__init__()
        self.layers = nn.ModuleList(KeyValue(config) for _ in range(config.layers))

    def forward(self, encoded: Tensor) -> list[KeysValues]:
        return [layer(encoded) for layer in self.layers]


class Decoder(nn.Module):
    """Target tokens (B, T) to the logits (B, T, V) of what follows each."""

    hidden: Tensor

    def __init__(self, config: Config) -> None:
        super().__init__()
        c = config
        self.embedding = Embedding(c.vocabulary_size, c)
        self.layers = nn.ModuleList(DecoderLayer(c) for _ in range(c.layers))
        self.projection = nn.Linear(c.width, c.vocabulary_size, bias=False)
        if c.tied_projection:
            self.projection.weight = self.embedding.token.weight
        later = torch.ones(c.longest, c.longest, dtype=torch.bool).triu(1)
        self.register_buffer("hidden", later, persistent=False)

    def forward(self, tokens: Tensor, memory: list[KeysValues], memory_hidden: Tensor) -> Tensor:
        # Padding ends a sequence, so that what comes before it need no mask of its own.
        length = tokens.shape[1]
        x = self.embedding(tokens)
        layer: Any  # DecoderLayer
        for layer, looked_up in zip(self.layers, memory, strict=True):
            x = layer(x, layer.key_value(x), self.hidden[:length, :length], looked_up, memory_hidden)
        logits: Tensor = self.projection(x)
        return logits


class DecoderStep(nn.Module):
    """The same decoder, one token at a time: tokens (B,) at one position to logits (B, V) and the new caches.

    A cache has a place for each of L positions; those to come are hidden. So all steps have the same shapes.
    """

    def __init__(self, decoder: Decoder) -> None:
        super().__init__()
        self.decoder = decoder

    def forward(
        self,
        tokens: Tensor,
        position: Tensor,
        memory: list[KeysValues],
        memory_hidden: Tensor,
        caches: list[KeysValues],
    ) -> tuple[Tensor, list[KeysValues]]:
        places = torch.arange(caches[0].keys.shape[2], device=tokens.device)
        here = (places == position).view(1, 1, -1, 1)
        x = self.decoder.embedding(tokens.unsqueeze(1), position)  # (B, 1, C)
        new_caches = []
        layer: Any  # DecoderLayer
        for layer, looked_up, cache in zip(self.decoder.layers, memory, caches, strict=True):
            keys, values = layer.key_value(x)
            own = KeysValues(torch.where(here, keys, cache.keys), torch.where(here, values, cache.values))
            x = layer(x, own, places > position, looked_up, memory_hidden)
            new_caches.append(own)
        return self.decoder.projection(x).squeeze(1), new_caches


class Transformer(nn.Module):
    """Source, source lengths (B,) and target tokens (B, T) to logits (B, T, V).

    `encoder` makes (B, S, C) of the source and its lengths, and the mask that hides the padding.
    """

    def __init__(self, encoder: nn.Module, config: Config) -> None:
        super().__init__()
        self.encoder = encoder
        self.memory = Memory(config)
        self.decoder = Decoder(config)
        for module in self.modules():
            if isinstance(module, nn.Linear) and module.weight is not self.decoder.embedding.token.weight:
                nn.init.xavier_uniform_(module.weight)

    def forward(self, source: Tensor, source_lengths: Tensor, target: Tensor) -> Tensor:
        encoded, hidden = self.encoder(source, source_lengths)
        logits: Tensor = self.decoder(target, self.memory(encoded), hidden)
        return logits


def padding(lengths: Tensor, longest: int) -> Tensor:
    """The mask (B, 1, 1, S) that hides what follows the end of each sequence; lengths are (B,)."""
    places = torch.arange(longest, device=lengths.device)
    return (places >= lengths.unsqueeze(1))[:, None, None]


def sinusoids(length: int, width: int) -> Tensor:
    """Positions as sines and cosines (section 3.5): (length, width)."""
    angles = torch.arange(length).unsqueeze(1) * 10000.0 ** (-torch.arange(0, width, 2) / width)
    return torch.stack([angles.sin(), angles.cos()], dim=2).flatten(1)
