"""Isoneutral mixing in an ocean model, as in pyhpc-benchmarks (https://github.com/dionhaefner/pyhpc-benchmarks).

One step computes the mixing tensor along surfaces of constant density (Griffies et al., 1998) from temperature and
salinity: `isoneutral_diffusion_pre` there, a kernel of the ocean model Veros (Häfner et al., 2018,
doi:10.5194/gmd-11-3299-2018). Masks are random as there; fields are drawn so that slopes are on both sides of the one
where mixing is tapered off. Temperature and salinity come with Veros' three time levels, of which the kernel reads one.

The work is that of `isoneutral_pytorch.py` there (commit d438ef8), run without TorchScript: it calls 487 operators in a
step, the network here 485, which move 0.7% more bytes.
"""

import torch
from torch import Tensor, nn

from .._shared.ocean import Grid, OceanKernel, grid_shape, random_mask
from .network import Config, Fields, IsoneutralMixing


class Model(OceanKernel):
    def build_network(self) -> nn.Module:
        x, y, _ = grid_shape(self.batch_size)
        self.grid = Grid(self.data, x, y)
        return IsoneutralMixing(Config(), self.grid)

    def build_fields(self) -> tuple[Tensor, ...]:
        shape = grid_shape(self.batch_size)
        mask_t, mask_u, mask_v, mask_w = (random_mask(self.data, *shape) for _ in range(4))
        stratification = (self.grid.zt / 1000.0).exp()[..., None]  # (1, 1, Z, 1)
        temperature = 20.0 * stratification + self.data.uniform(*shape, 3, low=-0.5, high=0.5, dtype=torch.float64)
        salinity = 34.0 + stratification + self.data.uniform(*shape, 3, low=-0.05, high=0.05, dtype=torch.float64)
        diffusivity = self.data.uniform(*shape, low=0.0, high=2000.0, dtype=torch.float64)
        return Fields(mask_t, mask_u, mask_v, mask_w, salinity, temperature, diffusivity)
