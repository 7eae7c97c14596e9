"""Edge convolutions (Wang et al., 2018, arXiv:1801.07829), at the sizes of TorchBench's basic_gnn_edgecnn.

An MLP works on each edge (both ends' features), and a node takes the maximum over its edges. The edges are given; the
paper finds them anew in each layer, as nearest neighbours of points.
"""

from torch import nn
from torch_geometric.nn import EdgeCNN

from torchzoo.networks.basic_gnn import BasicGNN


class Model(BasicGNN):
    def build_network(self) -> nn.Module:
        return EdgeCNN(self.width, self.width, num_layers=self.layers)
