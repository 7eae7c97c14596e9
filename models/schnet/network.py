"""SchNet (Schütt et al., 2017, arXiv:1706.08566) with forces: the energy's exact derivative by the atoms' positions.

All molecules have the same number of atoms, and all their atoms are nearer to each other than the cutoff. So the graph
of neighbours is known: all pairs of a molecule's atoms.

Shape letters: M molecules, A atoms of a molecule, P = A (A - 1) its pairs.
"""

import torch
from torch import Tensor, nn
from torch_geometric.nn import SchNet


class EnergyAndForces(nn.Module):
    """Atomic numbers (M * A,) and positions (M * A, 3) in Å to energies (M, 1) and forces (M * A, 3)."""

    def __init__(self, atoms: int, *, width: int, interactions: int, gaussians: int, cutoff: float) -> None:
        super().__init__()
        self.energy = SchNet(
            hidden_channels=width,
            num_filters=width,
            num_interactions=interactions,
            num_gaussians=gaussians,
            cutoff=cutoff,
            interaction_graph=AllPairs(atoms),
            readout=SumOfMolecule(atoms),
        )

    def forward(self, numbers: Tensor, positions: Tensor) -> tuple[Tensor, Tensor]:
        energies, slopes_by_energy = torch.func.vjp(lambda moved: self.energy(numbers, moved), positions)  # type: ignore[misc]
        (slopes,) = slopes_by_energy(torch.ones_like(energies))
        return energies, -slopes


class AllPairs(nn.Module):
    """The edges (2, M * P) and lengths (M * P,) of all pairs of atoms of the same molecule."""

    def __init__(self, atoms: int) -> None:
        super().__init__()
        self.atoms = atoms
        first, second = torch.ones(atoms, atoms, device="cpu").fill_diagonal_(0).nonzero(as_tuple=True)
        self.register_buffer("pairs", torch.stack([first, second]), persistent=False)  # (2, P)

    pairs: Tensor

    def forward(self, positions: Tensor, _: Tensor) -> tuple[Tensor, Tensor]:
        first_atom = torch.arange(0, len(positions), self.atoms, device=positions.device)  # of each molecule
        edges = (self.pairs.unsqueeze(1) + first_atom.view(1, -1, 1)).flatten(1)
        return edges, (positions[edges[0]] - positions[edges[1]]).norm(dim=1)


class SumOfMolecule(nn.Module):
    """The sums (M, C) over the atoms of each molecule. It asks the device for nothing."""

    def __init__(self, atoms: int) -> None:
        super().__init__()
        self.atoms = atoms

    def forward(self, x: Tensor, _: Tensor, *, dim: int) -> Tensor:
        assert dim == 0
        return x.view(-1, self.atoms, x.shape[1]).sum(1)
