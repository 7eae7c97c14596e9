"""A graph attention network (Veličković et al., 2017, arXiv:1710.10903): 3 layers of 8 heads of 32 on a larger graph.

The paper has 8 heads, too, of 8, in two layers. TorchBench has no such model among its core models; its canary model
`gat` is one layer of 2 heads on parts of Reddit's graph. The sizes here have no published source: they are torchzoo's
own choice. The suite should have a larger graph, too: this one has 20,000 nodes of 256 features and 200,000 edges. That
of TorchBench's four networks (`basic_gnn_gcn` and others) has 10,000 nodes of 64 features and also 200,000 edges.
torch_geometric adds self loops in each step.

It has 198,912 parameters: three layers of 256 x 256 weights, two attention vectors of 256 and a bias. By our count an
eval step takes 7.86 GFLOP and a train step 21.0. By hand: 20,000 nodes times 256 x 256 weights in three layers, 7.86
GFLOP; training takes three times that, without the gradient of the input, 21.0. Attention is a sum of products for each
edge, which does not count.
"""

from torch import nn
from torch_geometric.nn import GAT

from .._shared.basic_gnn import BasicGNN


class Model(BasicGNN):
    nodes = 20_000
    width = 256
    heads = 8

    def build_network(self) -> nn.Module:
        return GAT(self.width, self.width, num_layers=self.layers, heads=self.heads)
