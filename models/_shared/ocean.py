"""The grid of an ocean model, and what the kernels of pyhpc-benchmarks that run on it share.

The kernels are those of Veros (Häfner et al., 2018, doi:10.5194/gmd-11-3299-2018), whose variables lie on an Arakawa C
grid: T points at the centres of cells, U, V and W points at the centres of their eastern, northern and upper faces.
Shape letters: X eastward, Y northward, Z upward, the last level being the surface.
"""

from __future__ import annotations

import abc
import math

import torch
from torch import Tensor, nn

from torchzoo.model import Inputs, Model
from torchzoo.model.data import SyntheticData

LEVELS = 26
EARTH_RADIUS_M = 6.371e6


class OceanKernel(Model):
    """A network without parameters, evaluated once at every point of a grid in float64; the batch counts the points."""

    sample_unit = "grid points"
    batch: tuple[Tensor, ...]

    @abc.abstractmethod
    def build_network(self) -> nn.Module: ...

    @abc.abstractmethod
    def build_fields(self) -> tuple[Tensor, ...]:
        """The network's inputs."""

    def build(self) -> None:
        self.network = self.build_network()
        self.batch = self.build_fields()

    def networks(self) -> dict[str, nn.Module]:
        return {"network": self.network}

    @property
    def example_inputs(self) -> Inputs:
        return self.batch

    @torch.no_grad()
    def eval_step(self) -> Tensor | tuple[Tensor, ...]:
        with self.autocast():
            outputs: Tensor | tuple[Tensor, ...] = self.network(*self.batch)
        return outputs


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


class Grid(nn.Module):
    """Spacings in m, shaped to broadcast over (X, Y, Z); Veros' names, which end in the points they belong to.

    The grid spans the globe from 60 degrees south to 60 degrees north; cells differ in width by up to 10%, and their
    height grows from 10 m at the surface to 300 m at the bottom.

    Raises:
        ValueError: there is nothing between the two rows at each edge that kernels leave to the ocean model.
    """

    dxt: Tensor  # (X, 1, 1) eastward width of a cell at the equator
    dxu: Tensor  # (X, 1, 1) from a cell's centre to that of its eastern neighbour
    dyt: Tensor  # (1, Y, 1)
    dyu: Tensor  # (1, Y, 1)
    dzt: Tensor  # (1, 1, Z)
    dzw: Tensor  # (1, 1, Z)
    zt: Tensor  # (1, 1, Z) height of a cell's centre, negative
    cost: Tensor  # (1, Y, 1) cosine of the latitude at the cells' centres
    cosu: Tensor  # (1, Y, 1) and at their northern faces

    def __init__(self, data: SyntheticData, x: int, y: int) -> None:
        super().__init__()
        if min(x, y) < 5:
            raise ValueError(f"a grid of {x} x {y} columns is all edge: its sides must be 5 or more")
        widths = data.uniform(x, low=0.9, high=1.1, dtype=torch.float64)
        depths = data.uniform(y, low=0.9, high=1.1, dtype=torch.float64)
        heights = torch.logspace(math.log10(300.0), 1.0, LEVELS, dtype=torch.float64, device=data.device)
        dxt = widths / widths.sum() * 2.0 * math.pi * EARTH_RADIUS_M
        latitude_step = depths / depths.sum() * math.radians(120.0)
        northern = latitude_step.cumsum(0) - math.radians(60.0)
        top = heights.cumsum(0) - heights.sum()
        for name, values, shape in (
            ("dxt", dxt, (-1, 1, 1)),
            ("dxu", distances(dxt), (-1, 1, 1)),
            ("dyt", EARTH_RADIUS_M * latitude_step, (1, -1, 1)),
            ("dyu", EARTH_RADIUS_M * distances(latitude_step), (1, -1, 1)),
            ("dzt", heights, (1, 1, -1)),
            ("dzw", distances(heights), (1, 1, -1)),
            ("zt", top - heights / 2.0, (1, 1, -1)),
            ("cost", (northern - latitude_step / 2.0).cos(), (1, -1, 1)),
            ("cosu", northern.cos(), (1, -1, 1)),
        ):
            self.register_buffer(name, values.reshape(shape))


def distances(widths: Tensor) -> Tensor:
    """(N,) from each cell's centre to the next one's; from the last, as if another like it followed."""
    return (widths + torch.cat([widths[1:], widths[-1:]])) / 2.0


def random_mask(data: SyntheticData, *shape: int) -> Tensor:
    """1 at water points, four in five as in pyhpc-benchmarks, and 0 at land points."""
    return (data.uniform(*shape, dtype=torch.float64) < 0.8).to(torch.float64)
