"""DLRM with the cross network of DCN V2 (Naumov et al., 2019, arXiv:1906.00091; Wang et al., 2020, arXiv:2008.13535).

Dense features go through a bottom MLP. Each categorical feature is a bag of rows of its embedding table, which are
summed. All these vectors in one go through low-rank cross layers, then through a top MLP to the logit of a click.

Shape letters: B batch, N dense features, T tables, L lookups of a sample in all tables, D embedding size,
W = (T + 1) D the width of all vectors together.
"""

from dataclasses import dataclass
from itertools import pairwise

import torch
from torch import Tensor, nn
from torch.nn import functional as F


@dataclass(frozen=True, kw_only=True)
class Config:
    dense_features: int = 13
    bottom_widths: tuple[int, ...] = (512, 256, 128)  # the last one is the embedding size
    cross_layers: int = 3
    cross_rank: int = 512
    top_widths: tuple[int, ...] = (1024, 1024, 512, 256, 1)
    # Of each table, in the order of Criteo's features: the rows that MLPerf has, and the rows that a sample sums.
    published_rows: tuple[int, ...] = (
        *(40_000_000, 39_060, 17_295, 7_424, 20_265, 3, 7_122, 1_543, 63, 40_000_000, 3_067_956, 405_282, 10),
        *(2_209, 11_938, 155, 4, 976, 14, 40_000_000, 40_000_000, 40_000_000, 590_152, 12_973, 108, 36),
    )
    bag_sizes: tuple[int, ...] = (3, 2, 1, 2, 6, 1, 1, 1, 1, 7, 3, 8, 1, 6, 9, 5, 1, 1, 1, 12, 100, 27, 10, 3, 1, 1)
    most_rows: int = 4_000_000  # of a table here

    @property
    def rows(self) -> tuple[int, ...]:
        return tuple(min(rows, self.most_rows) for rows in self.published_rows)


class DLRMDCN(nn.Module):
    """Dense features (B, N) and rows (B * L,) to logits of clicks (B,).

    The rows are those of the first table, sample by sample, then those of the second table, and so on.
    """

    def __init__(self, config: Config) -> None:
        super().__init__()
        size = config.bottom_widths[-1]
        width = (len(config.rows) + 1) * size
        self.bag_sizes = config.bag_sizes
        self.bottom = nn.Sequential(*mlp(config.dense_features, config.bottom_widths), nn.ReLU())
        self.tables = nn.ModuleList(table(rows, size) for rows in config.rows)
        self.cross = nn.ModuleList(LowRankCross(width, config.cross_rank) for _ in range(config.cross_layers))
        self.top = nn.Sequential(*mlp(width, config.top_widths))

    def forward(self, dense: Tensor, rows: Tensor) -> Tensor:
        bags = rows.split_with_sizes([dense.shape[0] * size for size in self.bag_sizes])
        vectors = [self.bottom(dense)]  # (B, D)
        for table, bag, size in zip(self.tables, bags, self.bag_sizes, strict=True):
            vectors.append(table(bag.view(-1, size)))
        first = crossed = torch.cat(vectors, dim=1)  # (B, W)
        for layer in self.cross:
            crossed = layer(first, crossed)
        logits: Tensor = self.top(crossed)  # (B, 1)
        return logits.squeeze(1)


class LowRankCross(nn.Module):
    """The product of the first input, element by element, with a low-rank linear map of the input, plus the input."""

    def __init__(self, width: int, rank: int) -> None:
        super().__init__()
        self.down = nn.Parameter(nn.init.xavier_normal_(torch.empty(rank, width)))
        self.up = nn.Parameter(nn.init.xavier_normal_(torch.empty(width, rank)))
        self.bias = nn.Parameter(torch.zeros(width))

    def forward(self, first: Tensor, crossed: Tensor) -> Tensor:
        return first * F.linear(F.linear(crossed, self.down), self.up, self.bias) + crossed


def mlp(in_width: int, widths: tuple[int, ...]) -> list[nn.Module]:
    """Linear layers with ReLU between them."""
    layers: list[nn.Module] = []
    for fan_in, fan_out in pairwise((in_width, *widths)):
        layers += [nn.Linear(fan_in, fan_out), nn.ReLU()]
    return layers[:-1]


def table(rows: int, size: int) -> nn.EmbeddingBag:
    """An embedding table whose bags are summed, uniform within 1 / sqrt(rows) of zero. Its gradients are sparse."""
    bound = rows**-0.5
    weight = torch.empty(rows, size).uniform_(-bound, bound)
    return nn.EmbeddingBag.from_pretrained(weight, freeze=False, mode="sum", sparse=True)
