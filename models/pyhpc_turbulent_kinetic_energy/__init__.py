"""Turbulent kinetic energy in an ocean model, as in pyhpc-benchmarks (https://github.com/dionhaefner/pyhpc-benchmarks).

One step is one time step of the closure of Gaspar et al. (1990): `integrate_tke` there, a kernel of the ocean model
Veros (Häfner et al., 2018, doi:10.5194/gmd-11-3299-2018). Masks and the depth of the sea floor are random as there;
velocities, energies and lengths are drawn from ranges as they are found in the ocean, so that the system of vertical
mixing can be solved without pivoting. Variables come with Veros' three time levels; the step works on a copy of those
that it changes.

The work is that of `tke_pytorch.py` there (commit d438ef8), run without TorchScript and with these copies, as in
TorchBench: it calls 592 operators in a step, the network here 585, which move 1.0% fewer bytes.
"""

import torch
from torch import Tensor, nn

from .._shared.ocean import Grid, OceanKernel, grid_shape, random_mask
from .network import Config, Fields, TurbulentKineticEnergy


class Model(OceanKernel):
    def build_network(self) -> nn.Module:
        x, y, _ = grid_shape(self.batch_size)
        return TurbulentKineticEnergy(Config(), Grid(self.data, x, y))

    def build_fields(self) -> tuple[Tensor, ...]:
        x, y, z = grid_shape(self.batch_size)
        return Fields(
            u=self.uniform(x, y, z, 3, low=-0.5, high=0.5),
            v=self.uniform(x, y, z, 3, low=-0.5, high=0.5),
            w=self.uniform(x, y, z, 3, low=-1e-3, high=1e-3),
            mask_u=random_mask(self.data, x, y, z),
            mask_v=random_mask(self.data, x, y, z),
            mask_w=random_mask(self.data, x, y, z),
            bottom=self.data.integers(0, z, x, y),
            viscosity=self.uniform(x, y, z, low=1e-4, high=1e-1),
            mixing_length=self.uniform(x, y, z, low=0.1, high=50.0),
            forcing=self.uniform(x, y, z, low=-1e-7, high=1e-6),
            surface_forcing=self.uniform(x, y, low=-1e-5, high=1e-5),
            energy=self.uniform(x, y, z, 3, low=0.0, high=1e-3),
            tendency=self.uniform(x, y, z, 3, low=-1e-8, high=1e-8),
        )

    def uniform(self, *shape: int, low: float, high: float) -> Tensor:
        return self.data.uniform(*shape, low=low, high=high, dtype=torch.float64)
