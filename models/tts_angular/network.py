"""An LSTM encoder of speakers (Wan et al., 2017, arXiv:1710.10467), and a loss (Chung et al., 2020, arXiv:2003.11982).

Shape letters: B batch, T frames, M mel channels, P projection (and embedding), N speakers, U utterances of each.
"""

from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional as F


@dataclass(frozen=True, kw_only=True)
class Config:
    mel_channels: int = 40
    hidden: int = 768
    projection: int = 256
    layers: int = 3


class SpeakerEncoder(nn.Module):
    """Spectrograms (B, T, M) to embeddings (B, P) of length 1: what the last frame comes to."""

    def __init__(self, config: Config) -> None:
        super().__init__()
        c = config
        sizes = [c.mel_channels] + [c.projection] * (c.layers - 1)
        self.layers = nn.Sequential(*(ProjectedLSTM(size, c.hidden, c.projection) for size in sizes))
        for name, parameter in self.named_parameters():
            if "bias" in name:
                nn.init.zeros_(parameter)
            else:
                nn.init.xavier_normal_(parameter)

    def forward(self, mels: Tensor) -> Tensor:
        return F.normalize(self.layers(mels)[:, -1], dim=1)


class ProjectedLSTM(nn.Module):
    """(B, T, M) to (B, T, P). The projection follows the recurrence; it is no part of it, as it is in `nn.LSTM`."""

    def __init__(self, input_size: int, hidden_size: int, projection_size: int) -> None:
        super().__init__()
        self.lstm = nn.LSTM(input_size, hidden_size, batch_first=True)
        self.projection = nn.Linear(hidden_size, projection_size, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        hidden, _ = self.lstm(x)
        projected: Tensor = self.projection(hidden)
        return projected


class AngularPrototypicalLoss(nn.Module):
    """Embeddings (N, U, P) to the loss: which prototype is each speaker's, by the scaled cosine?"""

    def __init__(self) -> None:
        super().__init__()
        self.scale = nn.Parameter(torch.tensor(10.0))
        self.shift = nn.Parameter(torch.tensor(-5.0))

    def forward(self, embeddings: Tensor) -> Tensor:
        queries, prototypes = embeddings[:, -1], embeddings[:, :-1].mean(dim=1)  # (N, P) each
        cosines = F.cosine_similarity(queries.unsqueeze(1), prototypes.unsqueeze(0), dim=2)  # (N, N)
        logits = self.scale.clamp(min=1e-6) * cosines + self.shift
        return F.cross_entropy(logits, torch.arange(len(logits), device=logits.device))
