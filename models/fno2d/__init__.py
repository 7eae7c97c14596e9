"""The Fourier neural operator (Li et al., 2020, arXiv:2010.08895) from one field on a 128 x 128 grid to another one.

Layers, normalisation, loss (relative L2 error) and optimizer (Adam at 0.001, weight decay 1e-4) are those of the
paper's Darcy flow, https://github.com/zongyi-li/fourier_neural_operator. It has four layers, width 32 and 12 modes
there, 2.4 million parameters. Width 64 and 16 modes are the numbers of the example in the README of its successor,
https://github.com/neuraloperator/neuraloperator, where 16 counts the positive and the negative ones together; here, as
in the paper's code, there are 16 of each in the first direction. The fields are noise.

It has 16,803,073 parameters, where the paper's sizes in the same formula give 2,368,257: the weights of the
frequencies, 4 x 2 x 64 x 64 x 16 x 16 complex numbers, are all but 26,000. By our count an eval step of 64 fields takes
53.3 GFLOP and a train step of 16 fields 39.9. By hand, for a field: 16,384 points times 24,896 weights of the pointwise
layers, and 512 frequencies times 64 x 64 in four layers; 0.833 GFLOP. Training takes three times that, without the
gradient of the input. A complex multiply-add counts as two operations here (it has eight real ones, 0.05 GFLOP more),
and the Fourier transforms do not count.
"""

import torch
from torch import Tensor

from torchzoo.model.tasks import Batch, SupervisedModel

from .network import FNO2d


class Model(SupervisedModel):
    sample_unit = "fields"
    points = 128

    def build_network(self) -> FNO2d:
        return FNO2d(layers=4, width=64, modes=16)

    def build_batch(self) -> Batch:
        shape = (self.batch_size, self.points, self.points)
        return Batch((self.data.normal(*shape),), self.data.normal(*shape))

    def compute_loss(self, outputs: Tensor, targets: Tensor) -> Tensor:
        error = (outputs - targets).flatten(1).norm(dim=1)
        return (error / targets.flatten(1).norm(dim=1)).sum()

    def build_optimizer(self) -> torch.optim.Optimizer:
        return torch.optim.Adam(self.network.parameters(), lr=1e-3, weight_decay=1e-4)
