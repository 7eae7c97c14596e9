"""DLRM (Naumov et al., 2019, arXiv:1906.00091) predicting clicks from 512 dense and 8 categorical features."""

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from torchzoo.model import Batch, SupervisedModel

from .network import DLRM, Config


class Model(SupervisedModel):
    config = Config()

    def build_network(self) -> nn.Module:
        return DLRM(self.config)

    def build_batch(self) -> Batch:
        c = self.config
        dense = self.data.uniform(self.batch_size, c.dense_features)
        rows = self.data.integers(0, c.rows, c.tables, self.batch_size, c.lookups)
        clicks = self.data.integers(0, 2, self.batch_size).to(dense.dtype)
        return Batch((dense, rows), clicks)

    def compute_loss(self, outputs: Tensor, targets: Tensor) -> Tensor:
        return F.mse_loss(outputs, targets)

    def build_optimizer(self) -> torch.optim.Optimizer:
        return torch.optim.SGD(self.network.parameters(), lr=0.01)
