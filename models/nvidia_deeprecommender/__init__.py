"""A deep autoencoder that completes rating vectors (Kuchaiev and Ginsburg, 2017, arXiv:1708.01715).

A sample is a vector of 197,951 ratings from 1 to 5, of which 1% are known and the rest zero; as published, it is a
dense tensor when it enters the network. The squared error counts known ratings only. A train step is one SGD update
on such vectors; the paper's optional dense re-feeding, the same update on the outputs once more, is left out.
"""

import torch
from torch import Tensor, nn

from torchzoo.model.tasks import Batch, SupervisedModel

from .network import Autoencoder, Config


class Model(SupervisedModel):
    sample_unit = "rating vectors"
    config = Config()
    known = 0.01  # of all ratings

    def build_network(self) -> nn.Module:
        return Autoencoder(self.config)

    def build_batch(self) -> Batch:
        count = round(self.known * self.config.items)
        spacing = self.config.items // count
        # One item of each stretch, so that none is there twice: which of two ratings a GPU keeps is up to chance.
        items = spacing * torch.arange(count) + self.data.integers(0, spacing, self.batch_size, count)
        ratings = self.data.integers(1, 6, self.batch_size, count).to(torch.float32)
        vectors = torch.zeros(self.batch_size, self.config.items).scatter_(1, items, ratings)
        return Batch((vectors,), vectors)

    def compute_loss(self, outputs: Tensor, targets: Tensor) -> Tensor:
        """The mean squared error over the known ratings."""
        known = targets != 0
        return ((outputs - targets).square() * known).sum() / known.sum()

    def build_optimizer(self) -> torch.optim.Optimizer:
        return torch.optim.SGD(self.network.parameters(), lr=0.005, momentum=0.9)
