"""DLRM (Naumov et al., 2019, arXiv:1906.00091) predicting clicks from 512 dense and 8 categorical features.

Eight tables of 1,000,000 x 64 (2 GB in fp32), of which every sample sums 100 rows each: lookups dominate, not products.
Every bag has the same length, so the rows come as (T, B, L) and need no offsets. Squared error on the probability and
plain SGD, the defaults of the paper's code.

The gradients of the tables are sparse, as that code has them: a batch touches at most 204,800 of a table's million
rows, and a dense gradient is mostly zeros. On an H200 a train step took 4.4 ms and 2.4 GiB, with dense gradients 8.0 ms
and 4.0 GiB. inductor takes sparse ones without a graph break.
"""

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from torchzoo.model.tasks import Batch, SupervisedModel

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
