"""Exact Gaussian process regression on 4,096 points (Rasmussen and Williams, 2006, http://gaussianprocess.org/gpml).

Training maximises the log marginal likelihood of the kernel's parameters with Adam: a Cholesky factorisation of the
4096 x 4096 kernel matrix and a solve with it, forward and backward. Evaluation goes from the points to the means and
variances of as many new ones; it factorises, too.

The kernel (squared exponential, a length for each of 8 dimensions), all initial values and Adam at 0.1 are those of
GPyTorch (Gardner et al., 2018, arXiv:1809.11165; https://docs.gpytorch.ai, simple GP regression). GPyTorch itself
factorises up to 800 points by default, and uses conjugate gradients for more.
"""

import torch
from torch import Tensor

from torchzoo.case import Mode
from torchzoo.tasks import Batch, SupervisedModel

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
