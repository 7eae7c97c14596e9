"""Tacotron 2's spectrogram prediction network (Shen et al., 2017, arXiv:1712.05884).

An encoder of characters, a decoder that attends to it and makes one mel frame per step, and a postnet that adds a
correction to the finished spectrogram. Where the paper leaves a choice or the published model of 28,193,153 parameters
departs from it, this is that model: the attention's location features come from the last weights beside the cumulative
ones (the paper: the cumulative ones alone), and the decoder's LSTMs are regularised by dropout on their outputs, where
the paper has zoneout of the same probability and uses it in the encoder's LSTM too.

Shape letters: B batch, T text length, F mel frames, M mel channels, E encoder width, A attention size, H LSTM size of
the decoder, C convolution channels.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional as F


@dataclass(frozen=True, kw_only=True)
class Config:
    symbols: int = 148
    mel_channels: int = 80

    encoder_width: int = 512
    encoder_convolutions: int = 3

    prenet_width: int = 256
    decoder_width: int = 1024
    decoder_dropout: float = 0.1
    attention_size: int = 128
    location_filters: int = 32
    location_kernel_size: int = 31

    postnet_width: int = 512
    postnet_convolutions: int = 5

    kernel_size: int = 5  # of the encoder's and the postnet's convolutions
    dropout: float = 0.5  # likewise, and of the prenet


class Encoder(nn.Module):
    """Symbols (B, T) to memory (B, T, E) and the attention's keys (B, T, A), the same in all decoder steps."""

    def __init__(self, config: Config) -> None:
        super().__init__()
        c, width = config, config.encoder_width
        self.embedding = nn.Embedding(c.symbols, width)
        self.convolutions = nn.Sequential(
            *(Convolution(width, width, c, activation=F.relu) for _ in range(c.encoder_convolutions))
        )
        self.lstm = nn.LSTM(width, width // 2, batch_first=True, bidirectional=True)
        self.key = nn.Linear(width, c.attention_size, bias=False)

    def forward(self, text: Tensor) -> tuple[Tensor, Tensor]:
        x = self.embedding(text)  # (B, T, E)
        x = self.convolutions(x.transpose(1, 2)).transpose(1, 2)
        memory, _ = self.lstm(x)
        return memory, self.key(memory)


class Convolution(nn.Module):
    """(B, C, L) to (B, C', L): convolution, batch normalisation, activation if any, dropout."""

    def __init__(
        self, in_channels: int, out_channels: int, config: Config, *, activation: Callable[[Tensor], Tensor] | None
    ) -> None:
        super().__init__()
        self.convolution = nn.Conv1d(in_channels, out_channels, config.kernel_size, padding="same")
        self.norm = nn.BatchNorm1d(out_channels)
        self.activation = activation
        self.dropout = nn.Dropout(config.dropout)

    def forward(self, x: Tensor) -> Tensor:
        x = self.norm(self.convolution(x))
        if self.activation is not None:
            x = self.activation(x)
        dropped: Tensor = self.dropout(x)
        return dropped


class State(NamedTuple):
    """What the decoder hands from one frame to the next."""

    attention_hidden: Tensor  # (B, H)
    attention_cell: Tensor  # (B, H)
    decoder_hidden: Tensor  # (B, H)
    decoder_cell: Tensor  # (B, H)
    context: Tensor  # (B, E)
    weights: Tensor  # (B, T)
    cumulative_weights: Tensor  # (B, T)

    @classmethod
    def start(cls, memory: Tensor, config: Config) -> State:
        """All zeros, where `memory` (B, T, E) is, in its dtype."""
        batch, length, width = memory.shape
        hidden = memory.new_zeros(batch, config.decoder_width)
        weights = memory.new_zeros(batch, length)
        return cls(hidden, hidden, hidden, hidden, memory.new_zeros(batch, width), weights, weights)


class Decoder(nn.Module):
    """One step: the frame before (B, M) and the state to the next frame (B, M), its stop logit (B,), the new state.

    `padding` (B, T) is true where a text has ended.
    """

    def __init__(self, config: Config) -> None:
        super().__init__()
        c = config
        self.dropout = nn.Dropout(c.decoder_dropout)
        self.prenet = Prenet(c)
        self.attention_lstm = nn.LSTMCell(c.prenet_width + c.encoder_width, c.decoder_width)
        self.attention = LocationSensitiveAttention(c)
        self.decoder_lstm = nn.LSTMCell(c.decoder_width + c.encoder_width, c.decoder_width)
        self.frame = nn.Linear(c.decoder_width + c.encoder_width, c.mel_channels)
        self.stop = nn.Linear(c.decoder_width + c.encoder_width, 1)

    def forward(
        self, frame: Tensor, memory: Tensor, keys: Tensor, padding: Tensor, state: State
    ) -> tuple[Tensor, Tensor, State]:
        s = state
        x = torch.cat([self.prenet(frame), s.context], dim=1)
        attention_hidden, attention_cell = self.attention_lstm(x, (s.attention_hidden, s.attention_cell))
        attention_hidden = self.dropout(attention_hidden)
        weights = self.attention(attention_hidden, keys, padding, s.weights, s.cumulative_weights)
        context = torch.bmm(weights.unsqueeze(1), memory).squeeze(1)  # (B, E)

        x = torch.cat([attention_hidden, context], dim=1)
        decoder_hidden, decoder_cell = self.decoder_lstm(x, (s.decoder_hidden, s.decoder_cell))
        decoder_hidden = self.dropout(decoder_hidden)

        x = torch.cat([decoder_hidden, context], dim=1)
        state = State(
            attention_hidden,
            attention_cell,
            decoder_hidden,
            decoder_cell,
            context,
            weights,
            s.cumulative_weights + weights,
        )
        return self.frame(x), self.stop(x).squeeze(1), state


class Prenet(nn.Module):
    """A frame (B, M) to (B, prenet width); its dropout stays on in evaluation, as in the paper, to vary the output."""

    def __init__(self, config: Config) -> None:
        super().__init__()
        self.dropout = config.dropout
        self.first = nn.Linear(config.mel_channels, config.prenet_width, bias=False)
        self.second = nn.Linear(config.prenet_width, config.prenet_width, bias=False)

    def forward(self, frame: Tensor) -> Tensor:
        x = F.dropout(F.relu(self.first(frame)), self.dropout, training=True)
        return F.dropout(F.relu(self.second(x)), self.dropout, training=True)


class LocationSensitiveAttention(nn.Module):
    """Additive attention that sees where it has been (Chorowski et al., 2015, arXiv:1506.07503)."""

    def __init__(self, config: Config) -> None:
        super().__init__()
        c = config
        self.query = nn.Linear(c.decoder_width, c.attention_size, bias=False)
        self.location_convolution = nn.Conv1d(2, c.location_filters, c.location_kernel_size, padding="same", bias=False)
        self.location = nn.Linear(c.location_filters, c.attention_size, bias=False)
        self.energy = nn.Linear(c.attention_size, 1, bias=False)

    def forward(
        self, hidden: Tensor, keys: Tensor, padding: Tensor, weights: Tensor, cumulative_weights: Tensor
    ) -> Tensor:
        query = self.query(hidden).unsqueeze(1)  # (B, 1, A)
        history = torch.stack([weights, cumulative_weights], dim=1)  # (B, 2, T)
        location = self.location(self.location_convolution(history).transpose(1, 2))  # (B, T, A)
        energies = self.energy(torch.tanh(query + keys + location)).squeeze(2)  # (B, T)
        new_weights: Tensor = energies.masked_fill(padding, float("-inf")).softmax(dim=1)
        return new_weights


class Postnet(nn.Module):
    """Spectrograms (B, M, F) to the correction to be added to them (B, M, F)."""

    def __init__(self, config: Config) -> None:
        super().__init__()
        c, width = config, config.postnet_width
        self.convolutions = nn.Sequential(
            Convolution(c.mel_channels, width, c, activation=torch.tanh),
            *(Convolution(width, width, c, activation=torch.tanh) for _ in range(c.postnet_convolutions - 2)),
            Convolution(width, c.mel_channels, c, activation=None),
        )

    def forward(self, spectrograms: Tensor) -> Tensor:
        correction: Tensor = self.convolutions(spectrograms)
        return correction
