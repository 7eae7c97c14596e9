"""The equation of state of an ocean model, as in pyhpc-benchmarks (https://github.com/dionhaefner/pyhpc-benchmarks).

One step evaluates, once per grid point, the derivative of dynamic enthalpy with respect to temperature: `gsw_dHdT`
there, a kernel of the ocean model Veros (Häfner et al., 2018, doi:10.5194/gmd-11-3299-2018). Salinity, temperature and
pressure are drawn from the ranges used there; a level has one pressure, stored for each of its points.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn

from torchzoo.model import Inputs
from torchzoo.model import Model as BaseModel

from .network import Config, EnthalpySlope

LEVELS = 26


class Model(BaseModel):
    sample_unit = "grid points"
    batch: tuple[Tensor, Tensor, Tensor]

    def build(self) -> None:
        self.network = EnthalpySlope(Config())
        x, y, z = grid_shape(self.batch_size)
        salinity = self.data.uniform(x, y, z, low=0.01, high=10.0, dtype=torch.float64)  # g/kg
        temperature = self.data.uniform(x, y, z, low=-12.0, high=20.0, dtype=torch.float64)  # degrees Celsius
        pressure = self.data.uniform(1, 1, z, low=0.0, high=1000.0, dtype=torch.float64)  # dbar
        self.batch = (salinity, temperature, pressure.expand(x, y, z).contiguous())

    def networks(self) -> dict[str, nn.Module]:
        return {"network": self.network}

    @property
    def example_inputs(self) -> Inputs:
        return self.batch

    @torch.no_grad()
    def eval_step(self) -> Tensor:
        with self.autocast():
            enthalpy_slope: Tensor = self.network(*self.batch)
        return enthalpy_slope


def grid_shape(points: int) -> tuple[int, int, int]:
    """The grid of `points` points: 26 levels under a horizontal grid as near to a square as its size allows.

    Raises:
        ValueError: `points` is not a multiple of 26.
    """
    columns, rest = divmod(points, LEVELS)
    if rest or not columns:
        nearest = " or ".join(str(LEVELS * count) for count in (columns, columns + 1) if count)
        raise ValueError(
            f"a batch of {points} grid points fills no whole columns of {LEVELS} levels; the nearest: {nearest}"
        )
    x = next(side for side in range(math.isqrt(columns), 0, -1) if columns % side == 0)
    return x, columns // x, LEVELS
