"""A network that learns energy and force of the Lennard-Jones potential (Jones, 1924, doi:10.1098/rspa.1924.0082).

The pair potential, in units of its depth and of the distance where it is zero, is V(r) = 4 (r^-12 - r^-6), its force
-dV/dr = 24 (2 r^-13 - r^-7).

The work of a step is that of TorchBench's `models/lennard_jones` (https://github.com/pytorch/benchmark at 0e83c44), by
operators and bytes: the lengths of vectors, a forward pass of the network for their energies, another one and its
reverse for the energies' slopes, and from these the forces as vectors.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from torchzoo.model.tasks import Batch, SupervisedModel

from .network import Config, EnergyAndForce

CUTOFF = 2.5  # beyond it simulations take the potential for zero
FORCE_WEIGHT = 0.01
SPACE_DIMENSIONS = 3


class Model(SupervisedModel):
    sample_unit = "atom pairs"

    def build_network(self) -> nn.Module:
        return EnergyAndForce(Config())

    def build_batch(self) -> Batch:
        r = self.data.uniform(self.batch_size, 1, low=1.0, high=CUTOFF)
        directions = F.normalize(self.data.normal(self.batch_size, SPACE_DIMENSIONS), dim=1)
        energies = 4 * (r**-12 - r**-6)
        forces = 24 * (2 * r**-13 - r**-7) * directions
        return Batch((r * directions,), (energies, forces))

    def compute_loss(self, outputs: tuple[Tensor, Tensor], targets: tuple[Tensor, Tensor]) -> Tensor:
        energies, forces = outputs
        true_energies, true_forces = targets
        energy_error = F.mse_loss(energies, true_energies)
        force_error = F.mse_loss(forces, true_forces) / SPACE_DIMENSIONS
        return energy_error + FORCE_WEIGHT * force_error

    def build_optimizer(self) -> torch.optim.Optimizer:
        return torch.optim.Adam(self.network.parameters(), lr=1e-3)
