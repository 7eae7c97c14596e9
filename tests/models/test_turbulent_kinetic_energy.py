"""pyhpc_turbulent_kinetic_energy against a loop over single points, with a dense solver for each column."""

from __future__ import annotations

import itertools
import sys
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import torch

from torchzoo.zoo.catalog import find_models, load_model_class

if TYPE_CHECKING:
    from types import ModuleType

    from torchzoo.model import Model

X, Y, Z = 7, 8, 26
TIME_STEP_S = 600.0  # and a grid a thousand times finer than the globe's: every term counts
SHRINK = 1e-3


@pytest.fixture(scope="module")
def network() -> ModuleType:
    load_model_class(find_models().spec("pyhpc_turbulent_kinetic_energy"))
    return sys.modules["torchzoo_models.pyhpc_turbulent_kinetic_energy.network"]


@pytest.fixture(scope="module")
def model(network: ModuleType) -> Model:
    model = load_model_class(find_models().spec("pyhpc_turbulent_kinetic_energy"))("eval", "cpu", X * Y * Z)
    grid = model.networks()["network"].grid
    for spacing in (grid.dxt, grid.dxu, grid.dyt, grid.dyu):
        spacing.mul_(SHRINK)
    model.batch = model.batch._replace(
        surface_forcing=20 * model.batch.surface_forcing
    )  # enough to drain some surfaces
    model.network = network.TurbulentKineticEnergy(network.Config(time_step_s=TIME_STEP_S), grid)
    return model


class Loop:
    """One time step of one model's batch, one point at a time."""

    def __init__(self, model: Model) -> None:
        self.f = {name: tensor.numpy() for name, tensor in model.batch._asdict().items()}
        self.g = {name: tensor.numpy().ravel() for name, tensor in model.network.grid.named_buffers()}
        self.now = self.f["energy"][..., 0]
        self.heights = np.append(self.g["dzw"][:-1], self.g["dzw"][-1] / 2)

    def step(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        all_energies, all_tendencies = self.f["energy"].copy(), self.f["tendency"].copy()
        energy, tendency = all_energies[..., 1], all_tendencies[..., 0]
        correction = np.zeros((X, Y))
        for i, j in itertools.product(range(2, X - 2), range(2, Y - 2)):
            bottom = self.f["bottom"][i, j]
            if bottom > 0:
                energy[i, j, bottom - 1 :] = self.column(i, j, bottom - 1)
            if energy[i, j, -1] < 0:
                correction[i, j] = -energy[i, j, -1] * self.heights[-1] / TIME_STEP_S
                energy[i, j, -1] = 0.0
            for k in range(Z):
                tendency[i, j, k] = self.advection(i, j, k)
                energy[i, j, k] += TIME_STEP_S * self.lateral_mixing(i, j, k)
        energy += TIME_STEP_S * (1.6 * tendency - 0.6 * self.f["tendency"][..., 2])
        return all_energies, all_tendencies, correction

    def column(self, i: int, j: int, floor: int) -> np.ndarray:
        """The backward Euler step of all points from `floor` up, as a dense system."""
        f, dzt = self.f, self.g["dzt"]
        matrix, right = np.eye(Z), self.now[i, j] + TIME_STEP_S * f["forcing"][i, j]
        right[-1] += TIME_STEP_S * f["surface_forcing"][i, j] / self.heights[-1]
        for k in range(floor, Z):
            root = np.sqrt(max(0.0, self.now[i, j, k]))
            matrix[k, k] += TIME_STEP_S * 0.7 * root / f["mixing_length"][i, j, k]
        for k in range(floor, Z - 1):  # what k and k + 1 exchange
            viscosity = (f["viscosity"][i, j, k] + f["viscosity"][i, j, k + 1]) / 2
            exchange = TIME_STEP_S * viscosity / dzt[k + 1]
            for one, other in ((k, k + 1), (k + 1, k)):
                matrix[one, one] += exchange / self.heights[one]
                matrix[one, other] -= exchange / self.heights[one]
        return np.linalg.solve(matrix[floor:, floor:], right[floor:])

    def lateral_mixing(self, i: int, j: int, k: int) -> float:
        def east(i: int) -> float:
            difference = self.now[i + 1, j, k] - self.now[i, j, k]
            return 2000.0 * difference / (self.g["cost"][j] * self.g["dxu"][i]) * self.f["mask_u"][i, j, k]

        def north(j: int) -> float:
            difference = self.now[i, j + 1, k] - self.now[i, j, k]
            return 2000.0 * difference / self.g["dyu"][j] * self.g["cosu"][j] * self.f["mask_v"][i, j, k]

        return self.f["mask_w"][i, j, k] * self.divergence(i, j, east(i) - east(i - 1), north(j) - north(j - 1))

    def divergence(self, i: int, j: int, east: float, north: float) -> float:
        return (east / self.g["dxt"][i] + north / self.g["dyt"][j]) / self.g["cost"][j]

    def advection(self, i: int, j: int, k: int) -> float:
        east = self.flux(0, (i, j, k)) - self.flux(0, (i - 1, j, k))
        north = self.flux(1, (i, j, k)) - self.flux(1, (i, j - 1, k))
        top = self.flux(2, (i, j, k)) - self.flux(2, (i, j, k - 1))
        return -self.f["mask_w"][i, j, k] * self.divergence(i, j, east, north) - top / self.heights[k]

    def flux(self, axis: int, point: tuple[int, int, int]) -> float:
        """Through the face between `point` and the next: Lax and Wendroff's where limited to it, or upwind."""
        if axis == 2 and point[2] in (-1, Z - 1):
            return 0.0
        i, j, k = point
        velocity = self.f["uvw"[axis]][(*point, 0)] * (self.g["cosu"][j] if axis == 1 else 1.0)
        distance = (self.g["cost"][j] * self.g["dxt"][i], self.g["cost"][j] * self.g["dyt"][j], self.g["dzw"][k])[axis]
        step, middle = self.step_across(axis, point, 0)
        other, _ = self.step_across(axis, point, -1 if velocity > 0 else 1)
        ratio = other / (step if abs(step) >= 1e-20 else 1e-20)
        limiter = max(0.0, min(1.0, 2 * ratio), min(2.0, ratio))
        courant = abs(velocity) * TIME_STEP_S / distance
        return velocity * middle - abs(velocity) * (1 - limiter * (1 - courant)) * step / 2

    def step_across(self, axis: int, point: Any, shift: int) -> tuple[float, float]:
        """The difference (zero beside land) and the mean of the two points of the face `shift` faces ahead."""
        here, ahead = list(point), list(point)
        here[axis] += shift
        ahead[axis] += shift + 1
        if here[axis] < 0 or ahead[axis] == (X, Y, Z)[axis]:
            return 0.0, 0.0
        a, b = self.now[tuple(here)], self.now[tuple(ahead)]
        return (b - a) * self.f["mask_w"][tuple(here)] * self.f["mask_w"][tuple(ahead)], (a + b) / 2


def test_step_is_that_of_a_loop_over_points(model: Model) -> None:
    step = model.eval_step()
    assert step.surface_correction.any()
    for name, tensor, values in zip(step._fields, step, Loop(model).step(), strict=True):
        torch.testing.assert_close(
            tensor, torch.from_numpy(values), rtol=1e-9, atol=1e-15, msg=lambda text, name=name: f"{name}: {text}"
        )


def test_step_leaves_what_it_read_as_it_was(model: Model) -> None:
    before = [tensor.clone() for tensor in model.batch]
    model.eval_step()
    assert all(torch.equal(one, other) for one, other in zip(before, model.batch, strict=True))
