"""Exact Gaussian process regression on 4,096 points (Rasmussen and Williams, 2006, http://gaussianprocess.org/gpml).

Training maximises the log marginal likelihood of the kernel's parameters with Adam: a Cholesky factorisation of the
4096 x 4096 kernel matrix and a solve with it, forward and backward. Evaluation goes from the points to the means and
variances of as many new ones; it factorises, too.

The kernel (squared exponential, a length for each of 8 dimensions), all initial values and Adam at 0.1 are those of
GPyTorch (Gardner et al., 2018, arXiv:1809.11165; https://docs.gpytorch.ai, simple GP regression). GPyTorch itself
factorises up to 800 points by default, and uses conjugate gradients for more.

It has 11 parameters: 8 lengths, a scale, the noise and the mean. By our count an eval step takes 69.3 GFLOP and a train
step 413. By hand, with N = 4,096 points: evaluation solves a triangular system for N new points, N^3 = 68.7 GFLOP, and
the kernel adds 0.6. In training the gradient of the solve is a product of N x N matrices, and that of the factorisation
is one product and two triangular solves: 6 N^3 = 412, and the kernel adds 0.8. PyTorch has no formula for the
factorisation itself, about N^3 / 3 = 22.9 GFLOP: both counts leave it out.
"""

import torch
from torch import Tensor

from torchzoo.case import Mode
from torchzoo.model.tasks import Batch, SupervisedModel

from .network import ExactGP


class Model(SupervisedModel):
    sample_unit = "points"
    dimensions = 8

    def build_network(self) -> ExactGP:
        return ExactGP(self.dimensions)

    def build_batch(self) -> Batch:
        points = self.data.uniform(self.batch_size, self.dimensions)
        values = (points.sum(1) * torch.pi).sin() + 0.1 * self.data.normal(self.batch_size)
        if self.mode is Mode.TRAIN:
            return Batch((points, values))
        return Batch((points, values, self.data.uniform(self.batch_size, self.dimensions)))

    def compute_loss(self, outputs: Tensor, targets: None) -> Tensor:
        return outputs

    def build_optimizer(self) -> torch.optim.Optimizer:
        return torch.optim.Adam(self.network.parameters(), lr=0.1)
