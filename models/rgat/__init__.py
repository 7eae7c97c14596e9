"""R-GAT (Busbridge et al., 2019, arXiv:1904.05811) as MLPerf trains it.

It finds one of 2,983 classes for papers of IGB's heterogeneous graph. Sizes, loss and optimizer are those of
https://github.com/mlcommons/training (graph_neural_network, 2024): three layers, width 512, 4 heads, 11 relations
between 6 kinds of nodes, features of 1,024 numbers, neighbourhoods of 15, 10 and 5 neighbours, Adam at 0.001. They are
sampled before (`sampling.py` says how): a seed brings 3,591 nodes: 1,803 papers with itself, 629 authors, 9 institutes,
914 fields, 118 journals and 118 conferences. The reference samples while it trains, at 512 seeds for each process.

It has 13,115,303 parameters. MLPerf gives 25 million (mlcommons/training, retired_benchmarks/rgat/README.md, and the
table in its README.md). In the reference's code, as here, a relation has one matrix that maps the features of both its
ends. With a matrix for each end there would be 24,649,639 parameters; MLPerf does not say whether it counts so.

Layers work on the nodes that are needed, as the reference does with `--with_trim`. Without it all layers work on all
nodes, and the result is the same.

By our count an eval step of 1,024 seeds takes 14.5 TFLOP and a train step of 512 seeds 14.9. By hand: in each layer,
for each relation, the nodes at both ends times 1,024 x 512 weights (512 x 512 after the first layer), and the seeds
times 512 x 2,983; 14.5 TFLOP. Training takes three times that, without the gradients of the features, 14.9. The sums
over the edges do not count.

`cites` has papers at both ends, and those that edges end at are mapped a second time as its targets: 1.8% of an eval
step. (torch_geometric would map them once, but then compute an output for all papers, also where no layer needs it.)
"""

import torch
from torch import Tensor
from torch.nn import functional as F

from torchzoo.model.tasks import Batch, SupervisedModel

from .network import RGAT
from .sampling import KINDS, Neighbourhood


class Model(SupervisedModel):
    sample_unit = "seeds"
    fanouts = (15, 10, 5)
    features = 1024
    width = 512
    heads = 4
    classes = 2983
    different_nodes = 100_000  # so many have features of their own, which the others share

    @classmethod
    def small(cls) -> type["Model"]:
        sizes = {"fanouts": (3, 2, 2), "features": 16, "width": 16, "classes": 10, "different_nodes": 50}
        return type("Small", (cls,), sizes)

    def build_network(self) -> RGAT:
        return RGAT(Neighbourhood(self.fanouts), self.features, self.width, self.heads, self.classes)

    def build_batch(self) -> Batch:
        size, seeds = Neighbourhood(self.fanouts), self.batch_size
        different = self.data.normal(self.different_nodes, self.features)
        nodes = {
            kind: different[self.data.integers(0, self.different_nodes, seeds * size.nodes[kind][-1])] for kind in KINDS
        }
        return Batch((nodes, size.edge_indices(seeds)), self.data.labels(seeds, self.classes))

    def compute_loss(self, outputs: Tensor, targets: Tensor) -> Tensor:
        return F.cross_entropy(outputs, targets)

    def build_optimizer(self) -> torch.optim.Optimizer:
        return torch.optim.Adam(self.network.parameters(), lr=1e-3)
