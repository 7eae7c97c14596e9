"""How the enthalpy of sea water changes with its temperature, in closed form, from the 48-term density of TEOS-10.

In-situ density is a ratio of polynomials in pressure, rho = D(p) / N(p), whose coefficients are polynomials in
salinity (half powers too) and temperature; 48 numbers in all, of which one is 1 (IOC, SCOR and IAPSO, 2010, "The
international thermodynamic equation of seawater", manual 56, appendices A.30 and K):

    N = a0 + a1 p + a2 p^2 + a3 p^3        D = b0 + 2 b1 p + b2 p^2

Dynamic enthalpy H (Young, 2010, doi:10.1175/2009JPO4294.1) is specific volume N / D integrated from the surface to p.
Dividing N by D leaves a quotient (q0 + a3 p) / b2 and a remainder r0 + r1 p, so with s^2 = b1^2 - b0 b2

    H = (q0 + a3 p / 2) p / b2 + r1 / (2 b2) ln(D / b0) + (r0 - r1 b1 / b2) artanh(s p / (b0 + b1 p)) / s

and the network returns dH/dT by the product rule. A name that ends in `_t` is the derivative with respect to
temperature of the name without it.

Shapes: X, Y the horizontal grid, Z the levels; every point is computed by itself.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass

import torch
from torch import Tensor, nn

# One row per power of salinity (0, 1, 3/2, 2); in it, the coefficients of temperature to the power 0, 1, 2, ...
Rows = tuple[tuple[float, ...], ...]

PASCALS_PER_DECIBAR = 1e4


@dataclass(frozen=True, kw_only=True)
class Config:
    """The 48 terms, for salinity in g/kg, temperature in degrees Celsius, pressure in dbar and density in kg/m^3."""

    # fmt: off
    a0: Rows = (
        (1.0, 2.775927747785646e-3, -2.349607444135925e-5, 1.119513357486743e-6, 6.743689325042773e-10),
        (-7.521448093615448e-3, -2.764306979894411e-5, 1.262937315098546e-7, 9.527875081696435e-10,
         -1.811147201949891e-11),
        (-3.303308871386421e-5, 3.801564588876298e-7, -7.672876869259043e-9, -4.634182341116144e-11,
         2.681097235569143e-12),
        (5.419326551148740e-6,),
    )
    a1: Rows = (
        (-2.742185394906099e-5, -3.212746477974189e-7, 3.191413910561627e-9, -1.931012931541776e-12),
        (-1.105097577149576e-7, 6.211426728363857e-10),
    )
    a2: Rows = (
        (-1.119011592875110e-10, -1.941660213148725e-11, -1.864826425365600e-14),
        (0.0, 1.119522344879478e-14),
    )
    a3: Rows = ((-1.200507748551599e-15, 6.057902487546866e-17),)
    b0: Rows = (
        (9.998420897506056e2, 2.839940833161907, -3.147759265588511e-2, 1.181805545074306e-3),
        (-6.698001071123802, -2.986498947203215e-2, 2.327859407479162e-4),
        (-3.988822378968490e-2, 5.095422573880500e-4, -1.426984671633621e-5, 1.645039373682922e-7),
    )
    two_b1: Rows = (
        (-2.233269627352527e-2, -3.436090079851880e-4, 3.726050720345733e-6),
        (-1.806789763745328e-4, 6.876837219536232e-7),
    )
    b2: Rows = (
        (-3.087032500374211e-7, -1.988366587925593e-8, -1.061519070296458e-11),
        (1.550932729220080e-10,),
    )
    # fmt: on


class EnthalpySlope(nn.Module):
    """Salinity (g/kg), temperature (degrees C) and pressure (dbar), each (X, Y, Z), to dH/dT in J/(kg K), (X, Y, Z)."""

    def __init__(self, config: Config) -> None:
        super().__init__()
        self.terms: tuple[Rows, ...] = dataclasses.astuple(config)
        self.slope_terms = tuple(tuple(_derivative(row) for row in rows) for rows in self.terms)

    def forward(self, salinity: Tensor, temperature: Tensor, pressure: Tensor) -> Tensor:
        p = pressure
        powers = (salinity, salinity * salinity.sqrt(), salinity * salinity)
        a0, a1, a2, a3, b0, two_b1, b2 = [_evaluate(rows, powers, temperature) for rows in self.terms]
        a0_t, a1_t, a2_t, a3_t, b0_t, two_b1_t, b2_t = [
            _evaluate(rows, powers, temperature) for rows in self.slope_terms
        ]

        # N / D = (q0 + a3 p) / b2 + (r0 + r1 p) / D, all divided by b2 as they come
        inverse = 1 / b2
        a3, a3_t = a3 * inverse, (a3_t - a3 * inverse * b2_t) * inverse
        q0 = (a2 - two_b1 * a3) * inverse
        q0_t = (a2_t - two_b1_t * a3 - two_b1 * a3_t - q0 * b2_t) * inverse
        r0, r0_t = a0 - b0 * q0, a0_t - b0_t * q0 - b0 * q0_t
        r1, r1_t = a1 - b0 * a3 - two_b1 * q0, a1_t - b0_t * a3 - b0 * a3_t - two_b1_t * q0 - two_b1 * q0_t

        quotient_t = (q0_t + 0.5 * a3_t * p) * p

        # the logarithm: ln(D / b0), where D / b0 = 1 + u
        u = (two_b1 + b2 * p) * p / b0
        u_t = ((two_b1_t + b2_t * p) * p - u * b0_t) / b0
        log, log_t = torch.log1p(u), u_t / (1 + u)
        weight = 0.5 * r1 * inverse
        weight_t = (0.5 * r1_t - weight * b2_t) * inverse
        logarithm_t = weight_t * log + weight * log_t

        # the hyperbolic tangent: artanh(x) / s
        b1, b1_t = 0.5 * two_b1, 0.5 * two_b1_t
        s = (b1 * b1 - b0 * b2).sqrt()
        s_t = (b1 * b1_t - 0.5 * (b0_t * b2 + b0 * b2_t)) / s
        linear = b0 + b1 * p
        x = s * p / linear
        x_t = (s_t * p - x * (b0_t + b1_t * p)) / linear
        tangent = torch.atanh(x) / s
        tangent_t = (x_t / (1 - x * x) - tangent * s_t) / s
        rest, rest_t = r0 - 2 * weight * b1, r0_t - 2 * (weight_t * b1 + weight * b1_t)
        tangent_part_t = rest_t * tangent + rest * tangent_t

        return PASCALS_PER_DECIBAR * (quotient_t + logarithm_t + tangent_part_t)


def density(config: Config, salinity: Tensor, temperature: Tensor, pressure: Tensor) -> Tensor:
    """In-situ density in kg/m^3, from the 48 terms."""
    powers = (salinity, salinity * salinity.sqrt(), salinity * salinity)
    a0, a1, a2, a3, b0, two_b1, b2 = [_evaluate(rows, powers, temperature) for rows in dataclasses.astuple(config)]
    p = pressure
    return (b0 + p * (two_b1 + p * b2)) / (a0 + p * (a1 + p * (a2 + p * a3)))


def _derivative(row: tuple[float, ...]) -> tuple[float, ...]:
    return tuple(power * coefficient for power, coefficient in enumerate(row))[1:]


def _evaluate(rows: Rows, powers: tuple[Tensor, Tensor, Tensor], temperature: Tensor) -> Tensor:
    """The sum of the rows' polynomials in temperature, each times its power of salinity."""
    total = _horner(rows[0], temperature)
    for power, row in zip(powers, rows[1:], strict=False):
        if row:
            total = total + power * _horner(row, temperature)
    return total


def _horner(row: tuple[float, ...], temperature: Tensor) -> Tensor:
    *rest, total = row
    for coefficient in reversed(rest):
        total = total * temperature + coefficient  # type: ignore[assignment]
    return total  # type: ignore[return-value]  # a number where `row` is one
