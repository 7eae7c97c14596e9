"""How the enthalpy of sea water changes with its temperature, in closed form, from the 48-term density of TEOS-10.

In-situ density is a ratio of polynomials in pressure, rho = D(p) / N(p), whose coefficients are polynomials in
salinity (half powers too) and temperature; 48 numbers in all, of which one is 1 (IOC, SCOR and IAPSO, 2010, "The
international thermodynamic equation of seawater", manual 56, appendices A.30 and K):

    N = a0 + a1 p + a2 p^2 + a3 p^3        D = b0 + 2 b1 p + b2 p^2

Dynamic enthalpy H (Young, 2010, doi:10.1175/2009JPO4294.1) is specific volume N / D integrated from the surface to p.
Dividing N by D leaves a quotient (q0 + a3 p) / b2, where q0 = a2 - 2 a3 b1 / b2, and a remainder r0 + r1 p. With
s^2 = b1^2 - b0 b2

    H = (q0 + a3 p / 2) p / b2 + r1 / (2 b2) ln(1 + u) + (r0 b2 - r1 b1) / (2 b2 s) ln(1 + x)
    u = D / b0 - 1 = (2 b1 + b2 p) p / b0        x = 2 b2 p s / ((b1 - s) (b1 + s + b2 p))

and the network returns dH/dT. A name that ends in `_t` is the derivative with respect to temperature of the name
without it. Each is written out as the product rule gives it, in terms of the seven polynomials: to share products and
factors among the terms would be a third less work than the original's.

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
    """Salinity (g/kg) and temperature (degrees C), both (X, Y, Z), to dH/dT in J/(kg K), (X, Y, Z).

    Args:
        pressure: in dbar, broadcast to (X, Y, Z).
    """

    pressure: Tensor

    def __init__(self, config: Config, pressure: Tensor) -> None:
        super().__init__()
        self.terms: tuple[Rows, ...] = dataclasses.astuple(config)
        self.slope_terms = tuple(tuple(_derivative(row) for row in rows) for rows in self.terms)
        self.register_buffer("pressure", pressure)

    def forward(self, salinity: Tensor, temperature: Tensor) -> Tensor:
        p, whole, half = self.pressure, PASCALS_PER_DECIBAR, 0.5 * PASCALS_PER_DECIBAR
        powers = (salinity, salinity * salinity.sqrt(), salinity * salinity)
        a0, a1, a2, a3, b0, two_b1, b2 = [_evaluate(rows, powers, temperature) for rows in self.terms]
        a0_t, a1_t, a2_t, a3_t, b0_t, two_b1_t, b2_t = [
            _evaluate(rows, powers, temperature) for rows in self.slope_terms
        ]
        b1, b1_t = 0.5 * two_b1, 0.5 * two_b1_t
        inverse, inverse_t = 1 / b2, -b2_t / b2.square()  # of b2

        n0 = 2 * a3 * b0 * b1 * inverse - a2 * b0
        n0_t = 2 * a3_t * b0 * b1 * inverse + 2 * a3 * b0_t * b1 * inverse + 2 * a3 * b0 * b1_t * inverse
        n0_t = n0_t + 2 * a3 * b0 * b1 * inverse_t - a2_t * b0 - a2 * b0_t
        r0, r0_t = a0 + n0 * inverse, a0_t + n0_t * inverse + n0 * inverse_t

        n1 = 4 * a3 * b1.square() * inverse - a3 * b0 - 2 * a2 * b1
        n1_t = 4 * a3_t * b1.square() * inverse + 8 * a3 * b1 * b1_t * inverse + 4 * a3 * b1.square() * inverse_t
        n1_t = n1_t - a3_t * b0 - a3 * b0_t - 2 * a2_t * b1 - 2 * a2 * b1_t
        r1, r1_t = a1 + n1 * inverse, a1_t + n1_t * inverse + n1 * inverse_t

        # the quotient
        q = a2 - 2 * a3 * b1 * inverse + 0.5 * a3 * p
        q_t = a2_t - 2 * a3_t * b1 * inverse - 2 * a3 * b1_t * inverse - 2 * a3 * b1 * inverse_t + 0.5 * a3_t * p
        quotient_t = whole * p * q_t * inverse + whole * p * q * inverse_t

        # the first logarithm
        surface, surface_t = 1 / b0, -b0_t / b0.square()  # 1 / D at p = 0
        u = p * (two_b1 + b2 * p) * surface
        u_t = p * (two_b1_t + b2_t * p) * surface + p * (two_b1 + b2 * p) * surface_t
        log = torch.log1p(u)
        first_t = half * r1_t * inverse * log + half * r1 * inverse_t * log + half * r1 * inverse * u_t / (1 + u)

        # the second logarithm
        s_squared = b1.square() - b0 * b2
        s = s_squared.sqrt()
        s_t = 0.5 * (2 * b1 * b1_t - b0_t * b2 - b0 * b2_t) / s
        below, below_t = 1 / (b1 - s), b1_t - s_t
        above, above_t = 1 / (b1 + s + b2 * p), b1_t + s_t + b2_t * p
        x = 2 * b2 * p * s * below * above
        x_t = 2 * b2_t * p * s * below * above + 2 * b2 * p * s_t * below * above
        x_t = x_t - 2 * b2 * p * s * below_t * below.square() * above
        x_t = x_t - 2 * b2 * p * s * above_t * above.square() * below
        log = torch.log1p(x)
        rest, rest_t = r0 * b2 - r1 * b1, r0_t * b2 + r0 * b2_t - r1_t * b1 - r1 * b1_t
        second_t = half * rest_t * inverse * log / s + half * rest * inverse_t * log / s
        second_t = second_t - half * rest * inverse * log * s_t / s_squared + half * rest * inverse / s * x_t / (1 + x)

        return quotient_t + first_t + second_t


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
