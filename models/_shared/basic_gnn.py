"""The base of graph networks that are trained on a whole random graph, as TorchBench trains its `basic_gnn` models."""

from __future__ import annotations

from typing import ClassVar

import torch
from torch import Tensor
from torch_geometric import hash_tensor

from torchzoo.model.tasks import Batch, SupervisedModel

# torch_geometric replaces these two by functions of Python, for a kind of tensor that no model here has. TorchScript
# could not compile other models of the same process then.
torch.index_select, torch.select = hash_tensor._old_index_select, hash_tensor._old_select


class BasicGNN(SupervisedModel):
    """A network of torch_geometric: features (V, F) and edges (2, E) of a graph to vectors (V, F) of its nodes.

    The defaults are the sizes of https://github.com/pytorch/benchmark (torchbenchmark/util/framework/gnn, 2023). There
    a training step draws a random gradient of the outputs, goes backward with it, and updates nothing. Here the
    gradient is data of the batch: the loss is the product of a node's gradient and outputs, and Adam makes the update.

    A batch of several graphs is one graph in parts that are not connected.
    """

    sample_unit = "graphs"
    nodes: ClassVar[int] = 10_000
    edges: ClassVar[int] = 200_000
    width: ClassVar[int] = 64  # of features, of layers and of outputs
    layers: ClassVar[int] = 3

    @classmethod
    def small(cls) -> type[BasicGNN]:
        return type("Small", (cls,), {"nodes": 200, "edges": 2000, "width": 16})

    def build_batch(self) -> Batch:
        graphs = self.batch_size
        features = self.data.normal(graphs * self.nodes, self.width)
        edges = self.data.integers(0, self.nodes, 2, graphs, self.edges)
        edges = (edges + self.nodes * torch.arange(graphs).view(-1, 1)).flatten(1)
        return Batch((features, edges), self.data.normal(graphs * self.nodes, self.width))

    def compute_loss(self, outputs: Tensor, targets: Tensor) -> Tensor:
        return (outputs * targets).sum(1).mean()

    def build_optimizer(self) -> torch.optim.Optimizer:
        return torch.optim.Adam(self.network.parameters(), lr=1e-3)
