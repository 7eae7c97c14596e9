"""Principal neighbourhood aggregation (Corso et al., 2020, arXiv:2004.05718): 4 layers on a larger graph.

The paper's four layers, four aggregators (mean, maximum, minimum, standard deviation) and three scalers by degree. A
layer thus has 12 aggregates of its neighbours' messages, each as wide as a message. TorchBench has no such model. Width
and graph have no published source: they are torchzoo's own choice. The suite should have a larger graph, too: this one
has 20,000 nodes of 256 features and 200,000 edges. That of TorchBench's four networks (`basic_gnn_gcn` and others) has
10,000 nodes of 64 features and also 200,000 edges. The scalers need the mean degree of the training graphs; here it is
that of the graph, 10.

It has 4,197,376 parameters, by hand, too: 1,049,344 a layer. By our count an eval step takes 357 GFLOP and a train step
1,017. By hand, in each of four layers: 200,000 edges times 512 x 256 weights, 20,000 nodes times 3,328 x 256 (12
aggregates and the node itself) and 256 x 256; 357 GFLOP. Training takes three times that, without the gradient of the
input, 1,017.
"""

import torch
from torch import nn
from torch_geometric.nn import PNA

from .._shared.basic_gnn import BasicGNN


class Model(BasicGNN):
    nodes = 20_000
    width = 256
    layers = 4

    def build_network(self) -> nn.Module:
        degree = self.edges // self.nodes
        nodes_by_degree = torch.zeros(degree + 1, dtype=torch.long, device="cpu")
        nodes_by_degree[degree] = self.nodes
        return PNA(
            self.width,
            self.width,
            num_layers=self.layers,
            aggregators=["mean", "min", "max", "std"],
            scalers=["identity", "amplification", "attenuation"],
            deg=nodes_by_degree,
        )
