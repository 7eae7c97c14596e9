"""A relational graph attention network (Busbridge et al., 2019, arXiv:1904.05811), put together as MLPerf has it.

In each layer each relation has a graph attention of its own. What a node gets from all relations is summed. A layer
works only on the nodes that the layers after it need: each layer comes one hop nearer to the seeds.
"""

from torch import Tensor, nn
from torch.nn import functional as F
from torch_geometric.nn import GATConv, HeteroConv

from .sampling import RELATIONS, Neighbourhood


class RGAT(nn.Module):
    """Features of sampled nodes by kind (N, features) and edges by relation (2, E) to logits (seeds, classes)."""

    def __init__(self, neighbourhood: Neighbourhood, features: int, width: int, heads: int, classes: int) -> None:
        super().__init__()
        self.neighbourhood = neighbourhood
        widths = [features] + [width] * (neighbourhood.hops - 1)
        self.layers = nn.ModuleList(
            HeteroConv(
                {
                    (source, name, target): GATConv(in_width, width // heads, heads, add_self_loops=False)
                    for source, name, target, _ in RELATIONS
                }
            )
            for in_width in widths
        )
        self.dropout = nn.Dropout(0.2)
        self.head = nn.Linear(width, classes)

    def forward(self, nodes: dict[str, Tensor], edges: dict[str, Tensor]) -> Tensor:
        size = self.neighbourhood
        seeds = len(nodes["paper"]) // size.nodes["paper"][-1]
        for layer, hops in zip(self.layers, range(size.hops, 0, -1), strict=True):
            ends, used = {}, {}
            for source, name, target, _ in RELATIONS:
                count = seeds * size.edges[name][hops]
                if count:
                    key = (source, name, target)
                    ends[key] = (
                        nodes[source][: seeds * size.nodes[source][hops]],
                        nodes[target][: seeds * size.nodes[target][hops - 1]],
                    )
                    used[key] = edges[name][:, :count]
            nodes = layer(ends, used)
            if hops > 1:
                nodes = {kind: self.dropout(F.leaky_relu(x)) for kind, x in nodes.items()}
        logits: Tensor = self.head(nodes["paper"])
        return logits
