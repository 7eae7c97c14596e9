"""A small DenseNet (Huang et al., 2016, arXiv:1608.06993) for CIFAR-10, as in Lippe's UvA Deep Learning Tutorials.

Tutorial 5 (2022, https://uvadlc-notebooks.readthedocs.io) trains it by AdamW from a learning rate of 0.001.
"""

import torch
from torch import nn

from torchzoo.model.tasks import ImageClassifier

from .network import Config, DenseNet


class Model(ImageClassifier):
    image_size = 32
    num_classes = 10

    def build_network(self) -> nn.Module:
        return DenseNet(Config(classes=self.num_classes))

    def build_optimizer(self) -> torch.optim.Optimizer:
        return torch.optim.AdamW(self.network.parameters(), lr=1e-3, weight_decay=1e-4)
