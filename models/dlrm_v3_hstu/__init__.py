"""HSTU (Zhai et al., 2024, arXiv:2402.17152) ranking candidates, with the sizes of MLPerf's DLRM-v3.

Sizes, optimizers and the form of the inputs are those of https://github.com/mlcommons/inference
(recommendation/dlrm_v3, 2026) and of https://github.com/meta-recsys/generative-recommenders, which trains it: 5 layers
of 4 heads of 128, width 512, tables of items, their categories and users. Adam (betas 0.95 and 0.999) trains the
network at 0.001. The tables have sparse gradients and Adagrad at 0.001 with a sum for each weight; the reference has
one for each row. Binary cross entropy of the candidates, with the reference's weight of 0.2.

Different from MLPerf, so that it fits one GPU:
- Tables of 2,000,000 items and 2,000,000 users instead of 1,000,000,000 and 10,000,000, in fp32 instead of fp16: 8 GB
  instead of 1 TB.
- Histories of 512 to 2,048 items, 1,280 on average, evenly spread, so that every batch of the same size has the same
  work; which user has which is random. The reference has room for 16,384.
- A user has 32 candidates, as in the reference's training. Its inference has up to 2,048, at a batch of 10.

MLPerf's kernels for attention read jagged sequences and leave out what is later. PyTorch has no such kernel, so here
users attend in eight groups of like lengths and in blocks of 256 queries (`network.py` says how). The results are the
same. Attention then takes 1.64 TFLOP for 128 users. Without padding, and without scores of later tokens, it would be
1.26; padded to the longest possible user, 5.68.

It has 2,064,759,121 parameters, 16,693,585 of them outside the tables; with MLPerf's tables, 517 billion. By our count
an eval step of 128 users takes 4.96 TFLOP. By hand, for the J tokens of all users: five layers with J times 3,584 x 512
weights, 3.08 TFLOP; their attention, 4 x Q x K x 512 operations for each block of Q queries and K keys, 1.64; the MLPs
of tokens and candidates, 0.23; 4.95 in all. The train step of 32 users is not counted, because its Adagrad waits for
the device; by hand it takes 3.7 TFLOP, three times the forward pass.
"""

import torch
from torch import Tensor
from torch.nn import functional as F

from torchzoo.model.tasks import Batch, SupervisedModel

from .network import HSTU, Config


class Model(SupervisedModel):
    sample_unit = "users"
    config = Config()
    network: HSTU

    @classmethod
    def small(cls) -> type["Model"]:
        config = Config(
            layers=2,
            head_size=8,
            width=32,
            hidden=16,
            item_hidden=32,
            candidates=3,
            longest_history=24,
            shortest_history=8,
            groups=2,
            query_block=8,
            items=500,
            users=100,
            positions=64,
        )
        return type("Small", (cls,), {"config": config})

    def build_network(self) -> HSTU:
        return HSTU(self.config)

    def build_batch(self) -> Batch:
        c = self.config
        histories = c.histories(self.batch_size)
        lengths = torch.tensor(histories)[self.data.uniform(self.batch_size).argsort()] + c.candidates
        total = sum(histories) + self.batch_size * c.candidates
        gaps = self.data.integers(1, 3600, total)  # seconds from one item to the next
        inputs = {
            "users": self.data.integers(0, c.users, self.batch_size),
            "lengths": lengths,
            "items": self.data.integers(0, c.items, total),
            "categories": self.data.integers(0, c.categories, total),
            "actions": self.data.integers(1, 2**c.actions, total),
            "times": 1_700_000_000 + gaps.cumsum(0),
        }
        return Batch(inputs, self.data.integers(0, 2, self.batch_size, c.candidates).float())

    def compute_loss(self, outputs: Tensor, targets: Tensor) -> Tensor:
        return 0.2 * F.binary_cross_entropy_with_logits(outputs, targets)

    def build_optimizer(self) -> torch.optim.Optimizer:
        tables = list(self.network.tables.parameters())
        dense = [parameter for name, parameter in self.network.named_parameters() if not name.startswith("tables.")]
        self.table_optimizer = torch.optim.Adagrad(tables, lr=1e-3, eps=1e-8)
        return torch.optim.Adam(dense, lr=1e-3, betas=(0.95, 0.999), eps=1e-8)

    def train_step(self) -> Tensor:
        self.optimizer.zero_grad()
        self.table_optimizer.zero_grad()
        with self.autocast():
            loss = self.compute_loss(self.forward(), self.batch.targets)
        self.backward(loss)
        self.step(self.optimizer, self.table_optimizer)
        return loss.detach()
