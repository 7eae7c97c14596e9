"""Sampled neighbourhoods of IGB's heterogeneous graph (Khatua et al., 2023, arXiv:2302.13522), without the graph.

For each node of a hop and each relation into its kind, a sampler takes as many neighbours as the hop's fan-out allows.
Here a node has the mean number of neighbours that its kind has in IGBH-full, and all sampled nodes are different ones.
What a seed brings is the same for each seed, so that the work depends on nothing but the number of seeds.
"""

import math
from itertools import accumulate
from typing import NamedTuple

import torch
from torch import Tensor


class Relation(NamedTuple):
    """Edges from nodes of kind `source` to nodes of kind `target`, each of which has `neighbours` on average."""

    source: str
    name: str
    target: str
    neighbours: float


#: Nodes and edges of IGBH-full.
PAPERS, AUTHORS, INSTITUTES, FIELDS, JOURNALS, CONFERENCES = 269_346_174, 277_220_883, 26_918, 712_960, 49_052, 4_547
CITES, WRITTEN_BY, TOPIC, AFFILIATED_TO = 3_727_095_830, 716_761_549, 1_050_280_600, 48_521_486
#: How many edges papers have to journals and to conferences is not published. A paper has one of the two here.
PUBLISHED = VENUE = PAPERS // 2

RELATIONS = (
    Relation("paper", "cites", "paper", (2 * CITES + PAPERS) / PAPERS),  # both ways, and a loop at each paper
    Relation("paper", "written_by", "author", WRITTEN_BY / AUTHORS),
    Relation("author", "affiliated_to", "institute", AFFILIATED_TO / INSTITUTES),
    Relation("paper", "topic", "fos", TOPIC / FIELDS),
    Relation("author", "rev_written_by", "paper", WRITTEN_BY / PAPERS),
    Relation("institute", "rev_affiliated_to", "author", AFFILIATED_TO / AUTHORS),
    Relation("fos", "rev_topic", "paper", TOPIC / PAPERS),
    Relation("paper", "published", "journal", PUBLISHED / JOURNALS),
    Relation("paper", "venue", "conference", VENUE / CONFERENCES),
    Relation("journal", "rev_published", "paper", PUBLISHED / PAPERS),
    Relation("conference", "rev_venue", "paper", VENUE / PAPERS),
)
KINDS = ("paper", "author", "institute", "fos", "journal", "conference")


class Neighbourhood:
    """How many nodes and edges a seed has. Nodes of a kind and edges of a relation stand in the order of the hops.

    Args:
        fanouts: the most neighbours that a node of a hop gets from each relation, for each hop.
    """

    def __init__(self, fanouts: tuple[int, ...]) -> None:
        self.hops = len(fanouts)
        nodes = {kind: [1 if kind == "paper" else 0] for kind in KINDS}
        edges: dict[str, list[int]] = {relation.name: [0] for relation in RELATIONS}
        for fanout in fanouts:
            found = dict.fromkeys(KINDS, 0)
            for source, name, target, neighbours in RELATIONS:
                edges[name].append(math.ceil(nodes[target][-1] * min(neighbours, fanout)))
                found[source] += edges[name][-1]
            for kind in KINDS:
                nodes[kind].append(found[kind])
        #: For each kind or relation, how many nodes or edges there are up to a hop. Hop 0 has the seeds.
        self.nodes = {kind: tuple(accumulate(counts)) for kind, counts in nodes.items()}
        self.edges = {name: tuple(accumulate(counts)) for name, counts in edges.items()}

    def edge_indices(self, seeds: int) -> dict[str, Tensor]:
        """For each relation (2, E) edges, sources and targets. A target's edges stand together."""
        pieces: dict[str, list[Tensor]] = {relation.name: [] for relation in RELATIONS}
        for hop in range(1, self.hops + 1):
            first = {kind: seeds * self.nodes[kind][hop - 1] for kind in KINDS}  # of the hop's nodes
            for source, name, target, _ in RELATIONS:
                count = seeds * (self.edges[name][hop] - self.edges[name][hop - 1])
                before = seeds * (self.nodes[target][hop - 2] if hop > 1 else 0)
                targets = seeds * self.nodes[target][hop - 1] - before
                order = torch.arange(count)
                pieces[name].append(torch.stack([first[source] + order, before + order * targets // max(count, 1)]))
                first[source] += count
        return {name: torch.cat(parts, dim=1) for name, parts in pieces.items()}
