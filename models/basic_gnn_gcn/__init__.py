"""A graph convolutional network (Kipf and Welling, 2016, arXiv:1609.02907), at the sizes of TorchBench's basic_gnn_gcn.

torch_geometric adds self loops and computes the normalisation of the edges in each step.
"""

from torch import nn
from torch_geometric.nn import GCN

from torchzoo.networks.basic_gnn import BasicGNN


class Model(BasicGNN):
    def build_network(self) -> nn.Module:
        return GCN(self.width, self.width, num_layers=self.layers)
