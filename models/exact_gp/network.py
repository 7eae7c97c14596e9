"""Gaussian process regression (Rasmussen and Williams, 2006, http://gaussianprocess.org/gpml, chapters 2, 4 and 5).

A squared exponential kernel with a length for each input dimension, noise, and a constant mean. The kernel matrix of
all points is factorised.

Shape letters: N points, M new points, D input dimensions.
"""

import math

import torch
from torch import Tensor, nn
from torch.nn import functional as F


class ExactGP(nn.Module):
    """Points (N, D) with values (N,) to the negative log marginal likelihood of a point.

    Given new points (M, D), it returns the mean and the variance of their values instead, both (M,).
    """

    def __init__(self, dimensions: int) -> None:
        super().__init__()
        self.mean = nn.Parameter(torch.zeros(1))
        self.raw_lengths = nn.Parameter(torch.zeros(dimensions))
        self.raw_scale = nn.Parameter(torch.zeros(1))
        self.raw_noise = nn.Parameter(torch.zeros(1))

    def kernel(self, x: Tensor, other: Tensor) -> Tensor:
        lengths = F.softplus(self.raw_lengths)
        x, other = x / lengths, other / lengths
        distances = x.square().sum(1, keepdim=True) + other.square().sum(1) - 2 * x @ other.T
        return F.softplus(self.raw_scale) * (-0.5 * distances.clamp(min=0)).exp()

    def forward(self, x: Tensor, y: Tensor, new_x: Tensor | None = None) -> Tensor | tuple[Tensor, Tensor]:
        covariance = self.kernel(x, x).diagonal_scatter(self.kernel_diagonal(len(x)) + F.softplus(self.raw_noise))
        factor, _ = torch.linalg.cholesky_ex(covariance)  # it does not ask the device whether it was possible
        centred = (y - self.mean).unsqueeze(1)
        weights = torch.cholesky_solve(centred, factor)  # (N, 1)
        if new_x is None:
            fit = 0.5 * (centred * weights).sum()
            return (fit + factor.diagonal().log().sum()) / len(x) + 0.5 * math.log(2 * math.pi)
        cross = self.kernel(x, new_x)  # (N, M)
        explained = torch.linalg.solve_triangular(factor, cross, upper=False).square().sum(0)
        return self.mean + (cross.T @ weights).squeeze(1), self.kernel_diagonal(len(new_x)) - explained

    def kernel_diagonal(self, points: int) -> Tensor:
        """(points,): the variance of a value before any is known."""
        return F.softplus(self.raw_scale).expand(points)
