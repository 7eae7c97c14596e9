"""DLRM, the deep learning recommendation model (Naumov et al., 2019, arXiv:1906.00091).

Dense features go through a bottom MLP; each categorical feature, a bag of rows of its embedding table, is summed; the
dot products of all pairs of these vectors, beside the dense vector itself, go through a top MLP to a probability.

Shape letters: B batch, N dense features, T tables, L lookups per table, D embedding size, V = T + 1 vectors that
interact, P = V (V - 1) / 2 pairs.
"""

from dataclasses import dataclass
from itertools import pairwise

import torch
from torch import Tensor, nn


@dataclass(frozen=True, kw_only=True)
class Config:
    dense_features: int = 512
    bottom_widths: tuple[int, ...] = (512, 64)  # the last one is the embedding size
    tables: int = 8
    rows: int = 1_000_000  # of each table
    lookups: int = 100  # of each sample in each table
    top_widths: tuple[int, ...] = (1024, 1024, 1024, 1)
    sparse_gradients: bool = True


class DLRM(nn.Module):
    """Dense features (B, N) and table rows (T, B, L) to click probabilities (B,)."""

    def __init__(self, config: Config) -> None:
        super().__init__()
        size = config.bottom_widths[-1]
        vectors = config.tables + 1
        self.bottom = nn.Sequential(*mlp(config.dense_features, config.bottom_widths), nn.ReLU())
        self.tables = nn.ModuleList(
            table(config.rows, size, sparse=config.sparse_gradients) for _ in range(config.tables)
        )
        self.top = nn.Sequential(*mlp(size + vectors * (vectors - 1) // 2, config.top_widths), nn.Sigmoid())
        # Where row > column in a flattened (V, V) matrix: each pair once, none of a vector with itself.
        row, column = torch.tril_indices(vectors, vectors, offset=-1)
        self.register_buffer("pairs", row * vectors + column, persistent=False)  # (P,)

    pairs: Tensor

    def forward(self, dense: Tensor, rows: Tensor) -> Tensor:
        dense_vector = self.bottom(dense)  # (B, D)
        table_vectors = [table(bags) for table, bags in zip(self.tables, rows, strict=True)]  # T of (B, D)
        vectors = torch.stack([dense_vector, *table_vectors], dim=1)  # (B, V, D)
        products = torch.bmm(vectors, vectors.transpose(1, 2)).flatten(1)  # (B, V * V)
        interactions = products.index_select(1, self.pairs)  # (B, P)
        clicks: Tensor = self.top(torch.cat([dense_vector, interactions], dim=1))  # (B, 1)
        return clicks.squeeze(1)


def mlp(in_width: int, widths: tuple[int, ...]) -> list[nn.Module]:
    """Linear layers with ReLU between them, from the paper's code: normal weights, scaled by fan-in plus fan-out."""
    layers: list[nn.Module] = []
    for fan_in, fan_out in pairwise((in_width, *widths)):
        linear = nn.Linear(fan_in, fan_out)
        nn.init.normal_(linear.weight, std=(2 / (fan_in + fan_out)) ** 0.5)
        nn.init.normal_(linear.bias, std=fan_out**-0.5)
        layers += [linear, nn.ReLU()]
    return layers[:-1]


def table(rows: int, size: int, *, sparse: bool) -> nn.EmbeddingBag:
    """An embedding table whose bags are summed, uniform within 1 / sqrt(rows) of zero."""
    bound = rows**-0.5
    weight = torch.empty(rows, size).uniform_(-bound, bound)
    return nn.EmbeddingBag.from_pretrained(weight, freeze=False, mode="sum", sparse=sparse)
