"""One time step of turbulent kinetic energy (Gaspar, Grégoris and Lefevre, 1990, doi:10.1029/JC095iC09p16179) in Veros.

Energy lies at W points, the upper faces of cells. Vertical mixing and dissipation are implicit: a tridiagonal system
for each column, solved from the sea floor up and back. Lateral mixing and advection (with the superbee limiter: Roe,
1986, doi:10.1146/annurev.fl.18.010186.002005) are explicit; advection steps by Adams and Bashforth's second order.

Shapes: (X, Y, Z) the grid; `axis` is 0 eastward, 1 northward, 2 upward. Two rows at each horizontal edge are left to
the ocean model, which exchanges them with its neighbours: there only the time step of the given tendency is made.
"""

from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor, nn

from .._shared.ocean import Grid

NOW, NEXT, BEFORE = 0, 1, 2  # time levels
INSIDE = slice(2, -2)
INNER = (INSIDE, INSIDE)
Index = tuple[slice, ...]


@dataclass(frozen=True, kw_only=True)
class Config:
    """The numbers of pyhpc-benchmarks."""

    time_step_s: float = 1.0
    implicitness: float = 1.0  # alpha_tke: viscosity of energy over that of momentum
    dissipation: float = 0.7  # c_eps
    lateral_diffusivity: float = 2000.0  # m^2/s
    adams_bashforth: float = 0.1  # how far the extrapolation is off the middle, for stability
    tiny: float = 1e-20


class Fields(NamedTuple):
    """What the network reads, at W points where nothing else is said; a fourth dimension is time."""

    u: Tensor  # (X, Y, Z, 3) m/s, velocities through the faces of cells that have W points for centres
    v: Tensor
    w: Tensor
    mask_u: Tensor  # (X, Y, Z) 1 where there is water, at U points
    mask_v: Tensor  # at V points
    mask_w: Tensor
    bottom: Tensor  # (X, Y) number of the lowest level with water, from 1; 0 on land
    viscosity: Tensor  # (X, Y, Z) m^2/s
    mixing_length: Tensor  # (X, Y, Z) m
    forcing: Tensor  # (X, Y, Z) m^2/s^3, energy production
    surface_forcing: Tensor  # (X, Y) m^3/s^3, energy flux by the wind
    energy: Tensor  # (X, Y, Z, 3) m^2/s^2
    tendency: Tensor  # (X, Y, Z, 3) m^2/s^3, by advection


class Step(NamedTuple):
    energy: Tensor  # (X, Y, Z, 3) with that of the new time
    tendency: Tensor  # (X, Y, Z, 3) with that of now
    surface_correction: Tensor  # (X, Y) m^3/s^3, energy flux added to keep the surface's energy from being negative


class TurbulentKineticEnergy(nn.Module):
    """`Fields` to `Step`."""

    def __init__(self, config: Config, grid: Grid) -> None:
        super().__init__()
        self.config = config
        self.grid = grid

    def forward(self, *fields: Tensor) -> Step:
        f = Fields(*fields)
        f = f._replace(energy=f.energy.clone(), tendency=f.tendency.clone())  # the work is in place from here on
        dt, ab = self.config.time_step_s, self.config.adams_bashforth
        new = f.energy[..., NEXT]

        mixed, water = self.mix_vertically(f)
        new[INNER] = torch.where(water, mixed, new[INNER])
        correction = self.keep_surface_positive(new)
        new[INNER] += dt * f.mask_w[INNER] * self.lateral_mixing(f)
        self.advect(f)
        f.energy[..., NEXT] += dt * ((1.5 + ab) * f.tendency[..., NOW] - (0.5 + ab) * f.tendency[..., BEFORE])
        return Step(f.energy, f.tendency, correction)

    def mix_vertically(self, f: Fields) -> tuple[Tensor, Tensor]:
        """Energy (X - 4, Y - 4, Z) after vertical mixing, dissipation and forcing, and where it is so: in the water."""
        c, dt, dzt, dzw = self.config, self.config.time_step_s, self.grid.dzt, self.grid.dzw
        viscosity, length = f.viscosity[INNER], f.mixing_length[INNER]
        root = f.energy[..., NOW].clamp(min=0.0).sqrt()[INNER]
        exchange, lower, diagonal, upper, right = (torch.zeros_like(length) for _ in range(5))

        # m, what each point exchanges with the one above it
        exchange[..., :-1] = dt / dzt[..., 1:] * c.implicitness * 0.5 * (viscosity[..., :-1] + viscosity[..., 1:])
        for levels, below, height in self.levels_above_the_lowest():
            lower[..., levels] = -exchange[..., below] / height
            mixing = (exchange[..., levels] + exchange[..., below]) / height
            diagonal[..., levels] = 1.0 + mixing + dt * c.dissipation * root[..., levels] / length[..., levels]
        diagonal_at_floor = 1.0 + exchange / dzw + dt * c.dissipation / length * root
        upper[..., :-1] = -exchange[..., :-1] / dzw[..., :-1]
        right[...] = f.energy[(*INNER, slice(None), NOW)] + dt * f.forcing[INNER]
        right[..., -1] += dt * f.surface_forcing[INNER] / (0.5 * dzw[..., -1])

        lowest = f.bottom[INNER][..., None] - 1
        level = torch.arange(length.shape[-1], device=length.device)
        has_water = lowest >= 0
        water, at_floor = has_water & (level >= lowest), has_water & (level == lowest)
        diagonal = torch.where(at_floor, diagonal_at_floor, torch.where(water, diagonal, 1.0))
        return solve_tridiagonal(water * lower * ~at_floor, diagonal, water * upper, water * right), water

    def keep_surface_positive(self, energy: Tensor) -> Tensor:
        """Sets energy (X, Y, Z) that is negative at the surface to zero; returns the flux (X, Y) that this takes."""
        surface, height = energy[(*INNER, -1)], 0.5 * self.grid.dzw[..., -1]
        correction = torch.zeros_like(energy[..., -1])
        correction[INNER] = torch.where(surface < 0.0, -surface * height / self.config.time_step_s, 0.0)
        energy[(*INNER, -1)] = surface.clamp(min=0.0)
        return correction

    def lateral_mixing(self, f: Fields) -> Tensor:
        """The tendency (X - 4, Y - 4, Z) by diffusion along the levels."""
        grid, now, diffusivity = self.grid, f.energy[..., NOW], self.config.lateral_diffusivity
        east, north = torch.zeros_like(f.mask_u), torch.zeros_like(f.mask_v)
        east[:-1] = diffusivity * now.diff(dim=0) / (grid.cost * grid.dxu[:-1]) * f.mask_u[:-1]
        north[:, :-1] = diffusivity * now.diff(dim=1) / grid.dyu[:, :-1] * f.mask_v[:, :-1] * grid.cosu[:, :-1]
        return self.divergence(east, north)

    def advect(self, f: Fields) -> None:
        """Puts the tendency by advection along all axes into that of now."""
        grid, tendency = self.grid, f.tendency[..., NOW]
        velocities = (f.u[..., NOW], grid.cosu * f.v[..., NOW], f.w[..., NOW])
        distances = (grid.cost * grid.dxt, grid.cost * grid.dyt, grid.dzw)
        east, north, top = (
            self.superbee_flux(axis, velocity, f.energy[..., NOW], f.mask_w, distance)
            for axis, (velocity, distance) in enumerate(zip(velocities, distances, strict=True))
        )
        tendency[INNER] = -f.mask_w[INNER] * self.divergence(east, north)
        tendency[..., 0] += -top[..., 0] / grid.dzw[..., 0]
        for levels, below, height in self.levels_above_the_lowest():
            tendency[..., levels] += -(top[..., levels] - top[..., below]) / height

    def superbee_flux(self, axis: int, velocity: Tensor, energy: Tensor, mask: Tensor, distance: Tensor) -> Tensor:
        """The flux (X, Y, Z) through the faces next to the inside: second order where energy is smooth, else upwind."""
        flux, face, tiny = torch.zeros_like(mask), FACES[axis], self.config.tiny
        mask, distance = both_sides(mask, axis), distance.expand_as(mask)[face]
        if axis == 2:
            velocity, energy, mask = (with_zero_ends(field) for field in (velocity, energy, mask))
        velocity = windows(velocity, axis)[1]
        mask_behind, mask_here, mask_ahead, _ = windows(mask, axis)
        behind, here, ahead, beyond = windows(energy, axis)

        step = (ahead - here) * mask_here
        upwind_step = torch.where(velocity > 0.0, (here - behind) * mask_behind, (beyond - ahead) * mask_ahead)
        ratio = upwind_step / torch.where(step.abs() < tiny, tiny, step)
        limiter = torch.maximum((2.0 * ratio).clamp(max=1.0), ratio.clamp(max=2.0)).clamp(min=0.0)
        courant = (velocity * self.config.time_step_s / distance).abs()
        central = velocity * (ahead + here) * 0.5
        flux[face] = central - velocity.abs() * (1.0 - limiter + courant * limiter) * step * 0.5
        return flux

    def divergence(self, east: Tensor, north: Tensor) -> Tensor:
        """Of fluxes (X, Y, Z) through eastern and northern faces, per m: (X - 4, Y - 4, Z)."""
        cost, dxt, dyt = self.grid.cost[:, INSIDE], self.grid.dxt[INSIDE], self.grid.dyt[:, INSIDE]
        return east[FACES[0]].diff(dim=0) / (cost * dxt) + north[FACES[1]].diff(dim=1) / (cost * dyt)

    def levels_above_the_lowest(self) -> tuple[tuple[slice, slice, Tensor], ...]:
        """Levels, those below them, and the heights of the cells around the levels' W points.

        The uppermost level is apart: the surface cuts its cell in half.
        """
        dzw = self.grid.dzw
        return (
            (slice(1, -1), slice(None, -2), dzw[..., 1:-1]),
            (slice(-1, None), slice(-2, -1), 0.5 * dzw[..., -1:]),
        )


# The faces between a point and the next along an axis, of which the inside has two.
FACES: tuple[Index, ...] = (
    (slice(1, -2), INSIDE, slice(None)),
    (INSIDE, slice(1, -2), slice(None)),
    (INSIDE, INSIDE, slice(None, -1)),
)


def windows(field: Tensor, axis: int) -> list[Tensor]:
    """The field behind, here, ahead and beyond, for each of FACES: the two points that it parts and the two next."""
    count = field.shape[axis] - 3
    inside = [slice(None) if other in (axis, 2) else INSIDE for other in range(3)]
    return [field[tuple(inside)].narrow(axis, shift, count) for shift in range(4)]


def with_zero_ends(field: Tensor) -> Tensor:
    """(X, Y, Z) to (X, Y, Z + 2): below the floor and above the surface there is zero."""
    x, y, z = field.shape
    longer = field.new_zeros(x, y, z + 2)
    longer[..., 1:-1] = field
    return longer


def both_sides(mask: Tensor, axis: int) -> Tensor:
    """1 where a point and the next along an axis are water; 0 at the last."""
    count = mask.shape[axis] - 1
    both = torch.zeros_like(mask)
    both.narrow(axis, 0, count)[...] = mask.narrow(axis, 0, count) * mask.narrow(axis, 1, count)
    return both


def solve_tridiagonal(lower: Tensor, diagonal: Tensor, upper: Tensor, right: Tensor) -> Tensor:
    """Thomas' algorithm along the last dimension, for diagonally dominant systems; all arguments have one shape.

    It overwrites `diagonal` and `right`.
    """
    count = right.shape[-1]
    for k in range(1, count):
        factor = lower[..., k] / diagonal[..., k - 1]
        diagonal[..., k] += -factor * upper[..., k - 1]
        right[..., k] += -factor * right[..., k - 1]
    solution = torch.empty_like(right)
    solution[..., -1] = right[..., -1] / diagonal[..., -1]
    for k in reversed(range(count - 1)):
        solution[..., k] = (right[..., k] - upper[..., k] * solution[..., k + 1]) / diagonal[..., k]
    return solution
