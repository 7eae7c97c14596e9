"""A graph convolutional network (Kipf and Welling, 2016, arXiv:1609.02907), at the sizes of TorchBench's basic_gnn_gcn.

torch_geometric adds self loops and computes the normalisation of the edges in each step.

It has 12,480 parameters, a count of TorchBench's sizes by hand, too: three layers of 64 x 64 with biases. By our count
an eval step takes 0.246 GFLOP and a train step 0.655. By hand: 10,000 nodes times 64 x 64 weights in three layers,
0.246 GFLOP; training takes three times that, without the gradient of the input, 0.655. The sums over the edges are
gathers and scatters, which do not count.
"""

from torch import nn
from torch_geometric.nn import GCN

from .._shared.basic_gnn import BasicGNN


class Model(BasicGNN):
    def build_network(self) -> nn.Module:
        return GCN(self.width, self.width, num_layers=self.layers)
