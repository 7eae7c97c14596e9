"""Low-rank adapters of linear layers (Hu et al., 2021, arXiv:2106.09685, section 4.1)."""

from __future__ import annotations

from collections.abc import Collection

from torch import Tensor, nn
from torch.nn import functional as F


class AdaptedLinear(nn.Module):
    """W x + (alpha / rank) B A x, where W (with its bias, if it has one) is a given layer.

    A (rank, inputs) is normal, B (outputs, rank) is zero: at first the layer computes what it did before.
    """

    def __init__(self, linear: nn.Linear, rank: int, alpha: float) -> None:
        super().__init__()
        self.linear = linear
        self.scale = alpha / rank
        self.a = nn.Parameter(linear.weight.new_empty(rank, linear.in_features))
        self.b = nn.Parameter(linear.weight.new_zeros(linear.out_features, rank))
        nn.init.normal_(self.a, std=linear.in_features**-0.5)

    def forward(self, x: Tensor) -> Tensor:
        """(..., inputs) to (..., outputs)."""
        y: Tensor = self.linear(x)
        return y + self.scale * F.linear(F.linear(x, self.a), self.b)


def adapt(network: nn.Module, names: Collection[str], rank: int, alpha: float) -> None:
    """Freeze `network`, and give each linear layer in it whose own name is one of `names` an adapter to train."""
    network.requires_grad_(requires_grad=False)
    for parent in list(network.modules()):
        for name, child in list(parent.named_children()):
            if name in names and isinstance(child, nn.Linear):
                setattr(parent, name, AdaptedLinear(child, rank, alpha))
