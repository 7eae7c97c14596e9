"""GraphSAGE (Hamilton et al., 2017, arXiv:1706.02216) with means of neighbours, as TorchBench's basic_gnn_sage has it.

The graph is not sampled: each layer works on all nodes and edges.
"""

from torch import nn
from torch_geometric.nn import GraphSAGE

from torchzoo.networks.basic_gnn import BasicGNN


class Model(BasicGNN):
    def build_network(self) -> nn.Module:
        return GraphSAGE(self.width, self.width, num_layers=self.layers)
