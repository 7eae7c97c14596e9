"""A small model whose first layer suits every quantized precision."""

from __future__ import annotations

from torch import Tensor, nn
from torch.nn import functional as F

from torchzoo.model.tasks import Batch, SupervisedModel


class Perceptron(SupervisedModel):
    """Its second layer has an output that suits no 16, and no int4."""

    def build_network(self) -> nn.Module:
        return nn.Sequential(nn.Linear(128, 64), nn.ReLU(), nn.Linear(64, 10))

    def build_batch(self) -> Batch:
        return Batch((self.data.uniform(self.batch_size, 128),), self.data.labels(self.batch_size, 10))

    def compute_loss(self, outputs: Tensor, targets: Tensor) -> Tensor:
        return F.cross_entropy(outputs, targets)
