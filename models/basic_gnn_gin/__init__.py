"""A graph isomorphism network (Xu et al., 2018, arXiv:1810.00826), at the sizes of TorchBench's basic_gnn_gin.

A layer is an MLP of two linear layers on the sum of a node and its neighbours. As in TorchBench, it has no batch
normalisation; the paper's has.
"""

from torch import nn
from torch_geometric.nn import GIN

from torchzoo.networks.basic_gnn import BasicGNN


class Model(BasicGNN):
    def build_network(self) -> nn.Module:
        return GIN(self.width, self.width, num_layers=self.layers)
