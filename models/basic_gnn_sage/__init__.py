"""GraphSAGE (Hamilton et al., 2017, arXiv:1706.02216) with means of neighbours, as TorchBench's basic_gnn_sage has it.

The graph is not sampled: each layer works on all nodes and edges.

It has 24,768 parameters, a count of TorchBench's sizes by hand, too: in each of three layers a 64 x 64 matrix for the
node and one for the mean of its neighbours, and one bias. By our count an eval step takes 0.492 GFLOP and a train step
1.31. By hand: 10,000 nodes times those six matrices, 0.492 GFLOP; training takes three times that, without the
gradients of the first layer's two inputs, 1.31.
"""

from torch import nn
from torch_geometric.nn import GraphSAGE

from .._shared.basic_gnn import BasicGNN


class Model(BasicGNN):
    def build_network(self) -> nn.Module:
        return GraphSAGE(self.width, self.width, num_layers=self.layers)
