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
from torch.nn import functional as F

from torchzoo.networks.ocean import Grid

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
    energy: Tensor  # (X, Y, Z) at the new time
    tendency: Tensor  # (X, Y, Z) of now
    surface_correction: Tensor  # (X, Y) m^3/s^3, energy flux added to keep the surface's energy from being negative


class TurbulentKineticEnergy(nn.Module):
    """`Fields` to `Step`."""

    def __init__(self, config: Config, grid: Grid) -> None:
        super().__init__()
        self.config = config
        self.grid = grid

    def forward(self, *fields: Tensor) -> Step:
        f = Fields(*fields)
        dt, ab = self.config.time_step_s, self.config.adams_bashforth
        now = f.energy[..., NOW]

        mixed, water = self.mix_vertically(f)
        mixed = torch.where(water, mixed, f.energy[(*INNER, slice(None), NEXT)])
        mixed, correction = self.keep_surface_positive(mixed)
        mixed = mixed + dt * f.mask_w[INNER] * self.lateral_mixing(now, f.mask_u, f.mask_v)
        energy, tendency = f.energy[..., NEXT].clone(), f.tendency[..., NOW].clone()
        energy[INNER] = mixed
        tendency[INNER] = self.advection(f)
        energy += dt * ((1.5 + ab) * tendency - (0.5 + ab) * f.tendency[..., BEFORE])
        return Step(energy, tendency, F.pad(correction, (2, 2, 2, 2)))

    def mix_vertically(self, f: Fields) -> tuple[Tensor, Tensor]:
        """Energy (X - 4, Y - 4, Z) after vertical mixing, dissipation and forcing, and where it is so: in the water."""
        c, dt, heights = self.config, self.config.time_step_s, self.heights()
        now, viscosity = f.energy[(*INNER, slice(None), NOW)], f.viscosity[INNER]
        lowest = f.bottom[INNER][..., None] - 1
        level = torch.arange(now.shape[-1], device=now.device)
        water = (lowest >= 0) & (level >= lowest)
        at_floor = (lowest >= 0) & (level == lowest)

        # m, what each point exchanges with the one above it
        exchange = dt * c.implicitness * 0.5 * (viscosity[..., :-1] + viscosity[..., 1:]) / self.grid.dzt[..., 1:]
        above = F.pad(exchange, (0, 1)) / heights
        below = torch.where(at_floor, 0.0, F.pad(exchange, (1, 0)) / heights)
        loss = dt * c.dissipation * now.clamp(min=0.0).sqrt() / f.mixing_length[INNER]
        right = now + dt * f.forcing[INNER]
        right[..., -1] += dt * f.surface_forcing[INNER] / heights[..., -1]
        solution = solve_tridiagonal(
            -below * water, torch.where(water, 1.0 + above + below + loss, 1.0), -above * water, right * water
        )
        return solution, water

    def keep_surface_positive(self, energy: Tensor) -> tuple[Tensor, Tensor]:
        """Energy with what is negative at the surface set to zero, and the flux (X - 4, Y - 4) that this takes."""
        surface = energy[..., -1:]
        correction = (-surface).clamp(min=0.0) * self.heights()[..., -1:] / self.config.time_step_s
        return torch.cat([energy[..., :-1], surface.clamp(min=0.0)], dim=-1), correction.squeeze(-1)

    def lateral_mixing(self, energy: Tensor, mask_u: Tensor, mask_v: Tensor) -> Tensor:
        """The tendency (X - 4, Y - 4, Z) by diffusion along the levels."""
        grid = self.grid
        fluxes = []
        for axis, mask, metric in ((0, mask_u, 1.0 / (grid.cost * grid.dxu)), (1, mask_v, grid.cosu / grid.dyu)):
            _, here, ahead, _ = windows(energy, axis)
            face = FACES[axis]
            difference = (ahead - here) * metric.expand_as(mask)[face] * mask[face]
            fluxes.append(self.config.lateral_diffusivity * difference)
        return self.divergence(*fluxes)

    def advection(self, f: Fields) -> Tensor:
        """The tendency (X - 4, Y - 4, Z) by advection along all axes."""
        grid, energy = self.grid, f.energy[..., NOW]
        velocities = (f.u[..., NOW], grid.cosu * f.v[..., NOW], f.w[..., NOW])
        distances = (grid.cost * grid.dxt, grid.cost * grid.dyt, grid.dzw)
        east, north, top = (
            self.superbee_flux(axis, velocity[FACES[axis]], energy, f.mask_w, distance.expand_as(energy)[FACES[axis]])
            for axis, (velocity, distance) in enumerate(zip(velocities, distances, strict=True))
        )
        vertical = F.pad(top, (1, 1)).diff(dim=2) / self.heights()
        return -f.mask_w[INNER] * self.divergence(east, north) - vertical

    def superbee_flux(self, axis: int, velocity: Tensor, energy: Tensor, mask: Tensor, distance: Tensor) -> Tensor:
        """The flux through faces: second order where energy is smooth, upwind where it is not."""
        tiny = self.config.tiny
        mask_behind, mask_here, mask_ahead, _ = windows(both_sides(mask, axis), axis)
        behind, here, ahead, beyond = windows(energy, axis)
        step = (ahead - here) * mask_here
        upwind_step = torch.where(velocity > 0.0, (here - behind) * mask_behind, (beyond - ahead) * mask_ahead)
        ratio = upwind_step / torch.where(step.abs() < tiny, tiny, step)
        limiter = torch.maximum((2.0 * ratio).clamp(max=1.0), ratio.clamp(max=2.0)).clamp(min=0.0)
        courant = (velocity * self.config.time_step_s / distance).abs()
        central = velocity * (ahead + here) * 0.5
        return central - velocity.abs() * (1.0 - limiter + courant * limiter) * step * 0.5

    def divergence(self, east: Tensor, north: Tensor) -> Tensor:
        """Of fluxes through eastern (X - 3, Y - 4, Z) and northern (X - 4, Y - 3, Z) faces, per m."""
        cost, dxt, dyt = self.grid.cost[:, INSIDE], self.grid.dxt[INSIDE], self.grid.dyt[:, INSIDE]
        return east.diff(dim=0) / (cost * dxt) + north.diff(dim=1) / (cost * dyt)

    def heights(self) -> Tensor:
        """(1, 1, Z) of the cells around W points; the surface cuts the uppermost in half."""
        dzw = self.grid.dzw
        return torch.cat([dzw[..., :-1], 0.5 * dzw[..., -1:]], dim=-1)


# The faces between a point and the next along an axis, of which the inside has two.
FACES: tuple[Index, ...] = (
    (slice(1, -2), INSIDE, slice(None)),
    (INSIDE, slice(1, -2), slice(None)),
    (INSIDE, INSIDE, slice(None, -1)),
)


def windows(field: Tensor, axis: int) -> list[Tensor]:
    """The field behind, here, ahead and beyond, for each of FACES: the two points that it parts and the two next.

    Below the floor and above the surface there is zero.
    """
    if axis == 2:
        field = F.pad(field, (1, 1))
    count = field.shape[axis] - 3
    inside = [slice(None) if other in (axis, 2) else INSIDE for other in range(3)]
    return [field[tuple(inside)].narrow(axis, shift, count) for shift in range(4)]


def both_sides(mask: Tensor, axis: int) -> Tensor:
    """1 where a point and the next along an axis are water; 0 at the last."""
    count = mask.shape[axis] - 1
    both = mask.narrow(axis, 0, count) * mask.narrow(axis, 1, count)
    return F.pad(both, (0, 0) * (2 - axis) + (0, 1))


def solve_tridiagonal(lower: Tensor, diagonal: Tensor, upper: Tensor, right: Tensor) -> Tensor:
    """Thomas' algorithm along the last dimension, for diagonally dominant systems; all arguments have one shape."""
    ratio = value = torch.zeros_like(right[..., 0])
    eliminated = []
    for a, b, c, d in zip(*(each.unbind(-1) for each in (lower, diagonal, upper, right)), strict=True):
        pivot = b - a * ratio
        ratio, value = c / pivot, (d - a * value) / pivot
        eliminated.append((ratio, value))
    solution = torch.zeros_like(value)
    solutions = []
    for ratio, value in reversed(eliminated):
        solution = value - ratio * solution
        solutions.append(solution)
    return torch.stack(solutions[::-1], dim=-1)
