"""Principal neighbourhood aggregation (Corso et al., 2020, arXiv:2004.05718): 4 layers on a larger graph.

The paper's four layers, four aggregators (mean, maximum, minimum, standard deviation) and three scalers by degree. A
layer thus has 12 aggregates of its neighbours' messages, each as wide as a message. Width and graph (20,000 nodes,
200,000 edges) are torchzoo's own choice: TorchBench has no such model. The scalers need the mean degree of the training
graphs; here it is that of the graph, 10.
"""

import torch
from torch import nn
from torch_geometric.nn import PNA

from torchzoo.networks.basic_gnn import BasicGNN


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
