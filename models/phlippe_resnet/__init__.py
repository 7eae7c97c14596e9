"""A 20-layer ResNet (He et al., 2015, arXiv:1512.03385) for CIFAR-10, as in Lippe's UvA Deep Learning Tutorials.

Tutorial 5 (2022, https://uvadlc-notebooks.readthedocs.io) trains it by SGD from a learning rate of 0.1.
"""

import torch
from torch import nn

from torchzoo.model.tasks import ImageClassifier

from .network import Config, ResNet


class Model(ImageClassifier):
    image_size = 32
    num_classes = 10

    def build_network(self) -> nn.Module:
        return ResNet(Config(classes=self.num_classes))

    def build_optimizer(self) -> torch.optim.Optimizer:
        return torch.optim.SGD(self.network.parameters(), lr=0.1, momentum=0.9, weight_decay=1e-4)
