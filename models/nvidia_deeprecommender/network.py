"""The autoencoder of DeepRecommender (Kuchaiev and Ginsburg, 2017, arXiv:1708.01715): SELU after every layer.

Shape letters: B batch, N items.
"""

from dataclasses import dataclass
from itertools import pairwise

from torch import Tensor, nn


@dataclass(frozen=True, kw_only=True)
class Config:
    items: int = 197_951
    widths: tuple[int, ...] = (512, 512, 1024)  # of the encoder; the decoder has them in reverse
    dropout: float = 0.8  # of the code


class Autoencoder(nn.Module):
    """Ratings (B, N), zero where unknown, to predictions of all ratings (B, N)."""

    def __init__(self, config: Config) -> None:
        super().__init__()
        widths = (config.items, *config.widths)
        self.encoder = perceptron(widths)
        self.dropout = nn.Dropout(config.dropout)
        self.decoder = perceptron(widths[::-1])

    def forward(self, ratings: Tensor) -> Tensor:
        predictions: Tensor = self.decoder(self.dropout(self.encoder(ratings)))
        return predictions


def perceptron(widths: tuple[int, ...]) -> nn.Sequential:
    layers: list[nn.Module] = []
    for inputs, outputs in pairwise(widths):
        linear = nn.Linear(inputs, outputs)
        nn.init.xavier_uniform_(linear.weight)
        nn.init.zeros_(linear.bias)
        layers += [linear, nn.SELU()]
    return nn.Sequential(*layers)
