"""DLRM-DCNv2 as MLPerf trains it (v3.0 of 2023 and later): 13 dense features, 26 multi-hot ones, three cross layers.

Sizes, bags, optimizer and loss are those of https://github.com/mlcommons/training (recommendation_v2/torchrec_dlrm):
tables of dimension 128, a bottom MLP 512-256-128, cross layers of rank 512 (Wang et al., 2020, arXiv:2008.13535), a top
MLP 1024-1024-512-256-1, Adagrad at 0.005, binary cross entropy. A sample sums 214 rows, as in MLPerf's synthetic
multi-hot data set: from 1 to 100 for each table.

The published tables have 204,184,588 rows (26.1 billion parameters, 105 GB) and are spread over several GPUs. Here a
table has at most 4,000,000 rows, which shortens the five largest, of 40,000,000, so that the tables and Adagrad's sums
take 25 GB. Rows are drawn uniformly. In MLPerf's data the first row of each bag comes from Criteo's clicks, which
prefer some rows, and the others are uniform.

The gradients of the tables are sparse: a dense one would update millions of rows that the batch does not have. Adagrad
then sums the gradients of equal rows first. TorchRec does both in one kernel of the backward pass.

It has 3,111,671,809 parameters, 16,044,545 of them outside the tables. With the published tables they are
26,151,671,809. The table in MLPerf's README.md (mlcommons/training) says 167M; it does not say what that counts. By our
count an eval step of 8,192 samples takes 263 GFLOP. By hand: 16.03 million multiply-adds a sample, all weights of the
MLPs and the cross layers once, 263 GFLOP. The train step is not counted, because its Adagrad waits for the device; by
hand it takes 788 GFLOP, three times the forward pass without the gradient of the dense features.
"""

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from torchzoo.model.tasks import Batch, SupervisedModel

from .network import DLRMDCN, Config


class Model(SupervisedModel):
    config = Config()

    @classmethod
    def small(cls) -> type["Model"]:
        config = Config(bottom_widths=(32, 16), cross_layers=2, cross_rank=8, top_widths=(32, 1), most_rows=100)
        return type("Small", (cls,), {"config": config})

    def build_network(self) -> nn.Module:
        return DLRMDCN(self.config)

    def build_batch(self) -> Batch:
        c = self.config
        dense = self.data.uniform(self.batch_size, c.dense_features)
        sizes = zip(c.rows, c.bag_sizes, strict=True)
        rows = torch.cat([self.data.integers(0, rows, self.batch_size * size) for rows, size in sizes])
        clicks = self.data.integers(0, 2, self.batch_size).to(dense.dtype)
        return Batch((dense, rows), clicks)

    def compute_loss(self, outputs: Tensor, targets: Tensor) -> Tensor:
        return F.binary_cross_entropy_with_logits(outputs, targets)

    def build_optimizer(self) -> torch.optim.Optimizer:
        return torch.optim.Adagrad(self.network.parameters(), lr=0.005)
