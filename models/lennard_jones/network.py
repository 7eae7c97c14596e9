"""A neural potential: energy by a small tanh network of the distance, force as its exact derivative.

As in Behler and Parrinello (2007, doi:10.1103/PhysRevLett.98.146401) the network gives the energy alone, and the force
is minus its gradient, so the two agree with each other whatever the weights are.

Shapes: B pairs of atoms.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.func import jacrev, vmap


@dataclass(frozen=True, kw_only=True)
class Config:
    hidden_size: int = 16
    hidden_layers: int = 4


class EnergyAndForce(nn.Module):
    """Vectors from one atom to the other (B, 3) to energies (B, 1) and forces (B, 3)."""

    def __init__(self, config: Config) -> None:
        super().__init__()
        sizes = [1, *[config.hidden_size] * config.hidden_layers]
        layers: list[nn.Module] = []
        for inputs, outputs in itertools.pairwise(sizes):
            layers += [nn.Linear(inputs, outputs), nn.Tanh()]
        self.energy = nn.Sequential(*layers, nn.Linear(sizes[-1], 1))

    def forward(self, vectors: Tensor) -> tuple[Tensor, Tensor]:
        distances = torch.linalg.vector_norm(vectors, dim=1, keepdim=True)
        energies = self.energy(distances)
        slopes = vmap(jacrev(self.energy))(distances).squeeze(-1)  # (B, 1), by a forward pass of their own
        return energies, -slopes * vectors / distances
