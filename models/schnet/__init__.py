"""SchNet (Schütt et al., 2017, arXiv:1706.08566) learning energies and forces of 32 molecules the size of aspirin.

Sizes are torch_geometric's defaults, those of the published weights for QM9: 6 interactions, width 128, 50 Gaussians, a
cutoff of 10 Å. Batch, Adam at 0.001 and the loss, squared errors of forces plus 0.01 of those of energies, are the
paper's. The force is a derivative of the network, so training differentiates twice.

Positions are random, on a jittered lattice: 21 atoms 1.5 Å apart, all within the cutoff.

It has 455,809 parameters, a count of the published configuration by hand, too. By our count an eval step of 32
molecules takes 8.14 GFLOP and a train step 23.4. By hand: 13,440 edges times 50 x 128 and 128 x 128 weights and 672
atoms times three of 128 x 128, in six interactions, are 4.08 GFLOP for the energy. The forces take as much again, 8.14
in all, without the first layer of atoms, on which no position acts. Training takes 6 products for each one of the
energy, with few exceptions in the first and last layers: 23.4.
"""

import torch
from torch import Tensor
from torch.nn import functional as F

from torchzoo.model.tasks import Batch, SupervisedModel

from .network import EnergyAndForces

ASPIRIN = [6] * 9 + [1] * 8 + [8] * 4  # atomic numbers of C9H8O4
SPACING = 1.5  # Å
ENERGY_WEIGHT = 0.01


class Model(SupervisedModel):
    sample_unit = "molecules"

    def build_network(self) -> EnergyAndForces:
        return EnergyAndForces(len(ASPIRIN), width=128, interactions=6, gaussians=50, cutoff=10.0)

    def build_batch(self) -> Batch:
        molecules, atoms = self.batch_size, len(ASPIRIN)
        numbers = torch.tensor(ASPIRIN).repeat(molecules)
        lattice = torch.cartesian_prod(*[torch.arange(3)] * 3)[:atoms].repeat(molecules, 1)
        positions = SPACING * lattice + self.data.uniform(molecules * atoms, 3, low=-0.2, high=0.2)
        targets = self.data.normal(molecules, 1), self.data.normal(molecules * atoms, 3)
        return Batch((numbers, positions), targets)

    def compute_loss(self, outputs: tuple[Tensor, Tensor], targets: tuple[Tensor, Tensor]) -> Tensor:
        (energies, forces), (true_energies, true_forces) = outputs, targets
        return F.mse_loss(forces, true_forces) + ENERGY_WEIGHT * F.mse_loss(energies, true_energies)

    def build_optimizer(self) -> torch.optim.Optimizer:
        return torch.optim.Adam(self.network.parameters(), lr=1e-3)
