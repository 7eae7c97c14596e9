"""The isoneutral mixing tensor on a C grid, by triads (Griffies et al., 1998, J. Phys. Oceanogr. 28, 805-830).

The slope of a surface of constant density is a horizontal over a vertical gradient of density. At every face of a cell
it is computed four times, from triads of points: the gradient across the face, and one at right angles to it on either
side of the face and in either of two directions. Both gradients of a triad weigh temperature and salinity by what they
do to density in the same cell. Steep slopes are tapered off (Danabasoglu and McWilliams, 1995, J. Climate 8).

Shapes: (X, Y, Z) the grid; `axis` is 0 for eastward, 1 for northward. Two rows at each horizontal edge are left to the
ocean model, which exchanges them with its neighbours: they stay zero.
"""

from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor, nn

from .._shared.ocean import Grid

NOW = 0  # of three time levels
INSIDE = slice(2, -2)
Index = tuple[slice, ...]


@dataclass(frozen=True, kw_only=True)
class Config:
    """The numbers of pyhpc-benchmarks; its equation of state is quadratic in temperature (Vallis, 2006)."""

    tiny: float = 1e-20  # keeps slopes finite
    slope_limit: float = 1e-3  # where half of the mixing is tapered off
    slope_scale: float = 1e-3
    steep_diffusivity: float = 50.0  # m^2/s, what remains at the side faces where slopes are steep
    density: float = 1024.0  # kg/m^3
    gravity: float = 9.81  # m/s^2
    reference_temperature: float = 283.0 - 273.15  # degrees Celsius
    thermal_expansion: float = 1.67e-4  # 1/K
    thermal_expansion_slope: float = 1e-5  # 1/K^2
    thermobaric: float = 1.1e-8  # 1/Pa
    haline_contraction: float = 0.78e-3  # kg/g


class Fields(NamedTuple):
    """What the network reads, at the points that the names say; masks are 1 where there is water."""

    mask_t: Tensor  # (X, Y, Z)
    mask_u: Tensor
    mask_v: Tensor
    mask_w: Tensor
    salinity: Tensor  # (X, Y, Z, 3) g/kg at T points, the last dimension time
    temperature: Tensor  # (X, Y, Z, 3) degrees Celsius
    diffusivity: Tensor  # (X, Y, Z) m^2/s along the surfaces, at W points


class Mixing(NamedTuple):
    """The tensor's diagonal, (X, Y, Z) in m^2/s each, and the tapered slopes of its triads, (X, Y, Z, 2, 2) each.

    The two last dimensions: at a side face, the cell behind or ahead of it, and the bottom or top of that cell; at an
    upper face, the western (southern) or eastern (northern) side, and the cell below or above.
    """

    k_east: Tensor  # K_11, at U points
    k_north: Tensor  # K_22, at V points
    k_top: Tensor  # K_33, at W points
    slopes_east: Tensor  # Ai_ez
    slopes_north: Tensor  # Ai_nz
    slopes_top_x: Tensor  # Ai_bx
    slopes_top_y: Tensor  # Ai_by


class Pair(NamedTuple):
    """One field (X, Y, Z) for each of what density depends on."""

    temperature: Tensor
    salinity: Tensor


class IsoneutralMixing(nn.Module):
    """`Fields` to `Mixing`."""

    def __init__(self, config: Config, grid: Grid) -> None:
        super().__init__()
        self.config = config
        self.grid = grid

    def forward(self, *fields: Tensor) -> Mixing:
        f = Fields(*fields)
        temperature, salinity = f.temperature[..., NOW], f.salinity[..., NOW]
        expansion = self.expansion(temperature, f.mask_t)
        gradients = [
            Pair(self.gradient(axis, temperature, mask), self.gradient(axis, salinity, mask))
            for axis, mask in enumerate((f.mask_u, f.mask_v, f.mask_w))
        ]
        k_east, slopes_east = self.side_faces(0, expansion, gradients, f.mask_u, f.diffusivity)
        k_north, slopes_north = self.side_faces(1, expansion, gradients, f.mask_v, f.diffusivity)
        k_top, slopes_top_x, slopes_top_y = self.upper_faces(expansion, gradients, f.mask_w, f.diffusivity)
        return Mixing(k_east, k_north, k_top, slopes_east, slopes_north, slopes_top_x, slopes_top_y)

    def expansion(self, temperature: Tensor, mask: Tensor) -> Pair:
        """How density changes with temperature, in kg/m^3 per K, and salinity, in kg/m^3 per g/kg; at T points."""
        c = self.config
        pressure = c.density * c.gravity * self.grid.zt.abs()  # Pa
        relative = c.thermal_expansion * (1.0 + c.thermobaric * pressure)
        relative = relative + c.thermal_expansion_slope * (temperature - c.reference_temperature)
        return Pair(-c.density * mask * relative, c.density * c.haline_contraction * mask)

    def gradient(self, axis: int, tracer: Tensor, mask: Tensor) -> Tensor:
        """Per m, at U (axis 0), V or W points; zero at the last ones, beyond which there is nothing."""
        distance = (self.grid.dxu * self.grid.cost, self.grid.dyu, self.grid.dzw)[axis].expand_as(mask)
        gradient = torch.zeros_like(mask)
        faces = (slice(None),) * axis + (slice(None, -1),)
        gradient[faces] = mask[faces] * tracer.diff(dim=axis) / distance[faces]
        return gradient

    def side_faces(
        self, axis: int, expansion: Pair, gradients: list[Pair], mask: Tensor, diffusivity: Tensor
    ) -> tuple[Tensor, Tensor]:
        """The diagonal and the slopes at eastern (axis 0) or northern (axis 1) faces."""
        behind, ahead = rows(axis, slice(1, -2)), rows(axis, slice(2, -1))  # a face goes with the cell behind it
        at_tops = diffusivity[behind] + diffusivity[ahead]
        mean_diffusivity, total = torch.zeros_like(at_tops), torch.zeros_like(at_tops)
        mean_diffusivity[..., 1:] = 0.25 * (at_tops[..., 1:] + at_tops[..., :-1])
        mean_diffusivity[..., 0] = 0.5 * at_tops[..., 0]  # nothing below the lowest
        slopes = mask.new_zeros(*mask.shape, 2, 2)
        for side, cell in enumerate((behind, ahead)):
            for top in (0, 1):
                levels, w_levels = (slice(None), slice(None)) if top else (slice(1, None), slice(None, -1))
                across = density_gradient(expansion, (*cell, levels), gradients[axis], (*behind, levels))
                upward = density_gradient(expansion, (*cell, levels), gradients[2], (*cell, w_levels))
                slope, taper = self.slope(across, upward)
                water = mask[(*behind, levels)]
                tapered = (mean_diffusivity[..., levels] * taper).clamp(min=self.config.steep_diffusivity)
                total[..., levels] += self.grid.dzw[..., w_levels] * water * tapered
                slopes[(*behind, levels, side, top)] = taper * slope * water
        diagonal = torch.zeros_like(mask)
        diagonal[behind] = total / (4.0 * self.grid.dzt)
        return diagonal, slopes

    def upper_faces(
        self, expansion: Pair, gradients: list[Pair], mask: Tensor, diffusivity: Tensor
    ) -> tuple[Tensor, Tensor, Tensor]:
        """The diagonal, and the eastward and northward slopes, at upper faces."""
        grid, columns = self.grid, mask.shape[:2]
        inside = (INSIDE, INSIDE)
        faces = (*inside, slice(None, -1))  # none above the highest cell
        water, along = mask[faces], diffusivity[faces]
        totals = [torch.zeros_like(water) for _ in range(2)]
        slopes = [mask.new_zeros(*mask.shape, 2, 2) for _ in range(2)]
        for above, levels in enumerate((slice(None, -1), slice(1, None))):
            upward = density_gradient(expansion, (*inside, levels), gradients[2], faces)
            for axis, spacing in enumerate((grid.dxu, grid.dyu * grid.cosu)):
                for side, neighbour in enumerate((rows(axis, slice(1, -3)), inside)):
                    across = density_gradient(expansion, (*inside, levels), gradients[axis], (*neighbour, levels))
                    slope, taper = self.slope(across, upward)
                    distance = spacing.expand(*columns, 1)[neighbour]
                    totals[axis] += distance * along * taper * slope.square() * water
                    slopes[axis][(*faces, side, above)] = taper * slope * water
        diagonal = torch.zeros_like(mask)
        depth = grid.dyt * grid.cost
        diagonal[faces] = totals[0] / (4.0 * grid.dxt[INSIDE]) + totals[1] / (4.0 * depth[:, INSIDE])
        return diagonal, slopes[0], slopes[1]

    def slope(self, across: Tensor, upward: Tensor) -> tuple[Tensor, Tensor]:
        """Slopes, and how much of the mixing remains there; none remains where the water is not stably stratified."""
        c = self.config
        slope = -across / (upward.clamp(max=0.0) - c.tiny)
        taper = 0.5 * (1.0 + ((-slope.abs() + c.slope_limit) / c.slope_scale).tanh())
        return slope, taper


def density_gradient(expansion: Pair, cell: Index, gradient: Pair, face: Index) -> Tensor:
    """In kg/m^4, from the tracers' gradients at `face`, with the derivatives of density in `cell`."""
    by_temperature = expansion.temperature[cell] * gradient.temperature[face]
    return by_temperature + expansion.salinity[cell] * gradient.salinity[face]


def rows(axis: int, along: slice) -> Index:
    return (along, INSIDE) if axis == 0 else (INSIDE, along)
