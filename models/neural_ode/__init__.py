"""A neural ODE (Chen et al., 2018, arXiv:1806.07366) on MNIST-sized images, with torchdiffeq's adjoint method.

Network, batches and optimizer are those of the authors' example,
https://github.com/rtqichen/torchdiffeq/blob/master/examples/odenet_mnist.py (64 channels, SGD at 0.1 with momentum).
The paper gives its network 0.22 million parameters; this one has 208,266. Backward, the adjoint method solves a second
ODE and keeps no activations.

The paper's solver chooses its steps by its error. Here it is torchdiffeq's `rk4` with 8 steps, a Runge-Kutta method of
fourth order (Kutta's 3/8 rule). So each step of training has the same work: 32 evaluations of the dynamics forward and
32 backward.

By our count an eval step of 1,000 images takes 200 GFLOP and a train step of 128 images 98.9. By hand, for an image:
the first three convolutions take 13.8 million multiply-adds, the 32 evaluations of two convolutions of 65 channels at 6
x 6 take 86.3 million; 0.200 GFLOP in all. In training an evaluation costs four times as much (forward, and again with
two gradients backward), all else three times: 0.772 GFLOP.
"""

import torch
from torch import nn

from torchzoo.model.tasks import Batch, ImageClassifier

from .network import ODENet


class Model(ImageClassifier):
    num_classes = 10

    def build_network(self) -> nn.Module:
        return ODENet(channels=64, classes=self.num_classes, steps=8)

    def build_batch(self) -> Batch:
        images = self.data.images(self.batch_size, 1, 28, 28)
        return Batch((images,), self.data.labels(self.batch_size, self.num_classes))

    def build_optimizer(self) -> torch.optim.Optimizer:
        return torch.optim.SGD(self.network.parameters(), lr=0.1, momentum=0.9)
