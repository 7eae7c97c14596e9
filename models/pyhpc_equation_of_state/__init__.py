"""The equation of state of an ocean model, as in pyhpc-benchmarks (https://github.com/dionhaefner/pyhpc-benchmarks).

One step evaluates, once per grid point, the derivative of dynamic enthalpy with respect to temperature: `gsw_dHdT`
there, a kernel of the ocean model Veros (Häfner et al., 2018, doi:10.5194/gmd-11-3299-2018). Salinity, temperature and
pressure are drawn from the ranges used there; a level has one pressure.

The work is that of `eos_pytorch.py` there (commit d438ef8), run without TorchScript: it calls 372 operators in a step,
the network here 368, which move 1.4% fewer bytes.
"""

import torch
from torch import Tensor, nn

from .._shared.ocean import OceanKernel, grid_shape
from .network import Config, EnthalpySlope


class Model(OceanKernel):
    def build_network(self) -> nn.Module:
        *_, z = grid_shape(self.batch_size)
        pressure = self.data.uniform(1, 1, z, low=0.0, high=1000.0, dtype=torch.float64)  # dbar
        return EnthalpySlope(Config(), pressure)

    def build_fields(self) -> tuple[Tensor, ...]:
        shape = grid_shape(self.batch_size)
        salinity = self.data.uniform(*shape, low=0.01, high=10.0, dtype=torch.float64)  # g/kg
        temperature = self.data.uniform(*shape, low=-12.0, high=20.0, dtype=torch.float64)  # degrees Celsius
        return salinity, temperature
