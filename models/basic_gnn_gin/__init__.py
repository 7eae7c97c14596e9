"""A graph isomorphism network (Xu et al., 2018, arXiv:1810.00826), at the sizes of TorchBench's basic_gnn_gin.

A layer is an MLP of two linear layers on the sum of a node and its neighbours. As in TorchBench, it has no batch
normalisation; the paper's has.

It has 24,960 parameters, a count of TorchBench's sizes by hand, too: six linear layers of 64 x 64. By our count an eval
step takes 0.492 GFLOP and a train step 1.39. By hand: 10,000 nodes times 64 x 64 weights in six linear layers, 0.492
GFLOP; training takes three times that, without the gradient of the input, 1.39.
"""

from torch import nn
from torch_geometric.nn import GIN

from .._shared.basic_gnn import BasicGNN


class Model(BasicGNN):
    def build_network(self) -> nn.Module:
        return GIN(self.width, self.width, num_layers=self.layers)
