"""A graph attention network (Veličković et al., 2017, arXiv:1710.10903): 3 layers of 8 heads of 32 on a larger graph.

The paper has 8 heads, too, of 8, in two layers. Width, layers and graph (20,000 nodes, 200,000 edges) are torchzoo's
own choice: none of TorchBench's core models is one. torch_geometric adds self loops in each step.
"""

from torch import nn
from torch_geometric.nn import GAT

from torchzoo.networks.basic_gnn import BasicGNN


class Model(BasicGNN):
    nodes = 20_000
    width = 256
    heads = 8

    def build_network(self) -> nn.Module:
        return GAT(self.width, self.width, num_layers=self.layers, heads=self.heads)
