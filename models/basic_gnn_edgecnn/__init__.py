"""Edge convolutions (Wang et al., 2018, arXiv:1801.07829), at the sizes of TorchBench's basic_gnn_edgecnn.

An MLP works on each edge (both ends' features), and a node takes the maximum over its edges. The edges are given; the
paper finds them anew in each layer, as nearest neighbours of points.

It has 37,248 parameters, a count of TorchBench's sizes by hand, too: three MLPs of widths 128, 64 and 64. By our count
an eval step takes 14.7 GFLOP and a train step 41.0. By hand: each layer multiplies the 200,000 edges with 128 x 64 and
64 x 64 weights, 14.7 GFLOP; training takes three times that, without the gradient of the input, 41.0.
"""

from torch import nn
from torch_geometric.nn import EdgeCNN

from .._shared.basic_gnn import BasicGNN


class Model(BasicGNN):
    def build_network(self) -> nn.Module:
        return EdgeCNN(self.width, self.width, num_layers=self.layers)
