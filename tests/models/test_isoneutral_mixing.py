"""pyhpc_isoneutral_mixing against a loop over single triads, and where the mixing tensor is known without one."""

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
TINY, STEEP = 1e-20, 50.0


@pytest.fixture(scope="module")
def model() -> Model:
    return load_model_class(find_models().spec("pyhpc_isoneutral_mixing"))("eval", "cpu", X * Y * Z)


@pytest.fixture(scope="module")
def network() -> ModuleType:
    load_model_class(find_models().spec("pyhpc_isoneutral_mixing"))
    return sys.modules["torchzoo_models.pyhpc_isoneutral_mixing.network"]


class Loop:
    """The tensor of one model's batch, one triad at a time, with the neighbours spelled out."""

    def __init__(self, model: Model) -> None:
        fields = {name: tensor.numpy() for name, tensor in model.batch._asdict().items()}
        grid = {name: tensor.numpy().ravel() for name, tensor in model.networks()["network"].grid.named_buffers()}
        self.f, self.g = fields, grid
        self.temperature, self.salinity = fields["temperature"][..., 0], fields["salinity"][..., 0]

    def slope(self, cell: Any, face: Any, axis: int, w_point: Any) -> tuple[float, float]:
        """With density's derivatives in `cell`; the horizontal gradient at `face`, the vertical one at `w_point`."""
        across = self.density_gradient(cell, face, axis)
        upward = self.density_gradient(cell, w_point, 2)
        slope = -across / (min(0.0, upward) - TINY)
        return slope, 0.5 * (1 + np.tanh((1e-3 - abs(slope)) / 1e-3))

    def density_gradient(self, cell: Any, face: Any, axis: int) -> float:
        ahead = list(face)
        ahead[axis] += 1
        if ahead[axis] == (X, Y, Z)[axis]:
            return 0.0
        i, j, k = face
        g = self.g
        distance = (g["dxu"][i] * g["cost"][j], g["dyu"][j], g["dzw"][k])[axis]
        mask = self.f[("mask_u", "mask_v", "mask_w")[axis]][face] * self.f["mask_t"][cell]
        warming = self.temperature[tuple(ahead)] - self.temperature[face]
        salting = self.salinity[tuple(ahead)] - self.salinity[face]
        depth = abs(g["zt"][cell[2]])
        by_temperature = 1e-5 * (self.temperature[cell] - 9.85) + 1.67e-4 * (1 + 1.1e-8 * 9.81 * depth * 1024)
        return 1024 * mask * (0.78e-3 * salting - by_temperature * warming) / distance

    def side_face(self, axis: int) -> tuple[np.ndarray, np.ndarray]:
        diagonal, slopes = np.zeros((X, Y, Z)), np.zeros((X, Y, Z, 2, 2))
        first = (1, 2) if axis == 0 else (2, 1)
        mask, along, dzw = self.f[("mask_u", "mask_v")[axis]], self.f["diffusivity"], self.g["dzw"]
        for i, j, k in itertools.product(range(first[0], X - 2), range(first[1], Y - 2), range(Z)):
            ahead = (i + 1, j) if axis == 0 else (i, j + 1)
            below = max(k - 1, 0)
            mean = (along[i, j, k] + along[i, j, below] + along[(*ahead, k)] + along[(*ahead, below)]) / 4
            for (side, column), up in itertools.product(enumerate([(i, j), ahead]), (0, 1)):
                w_level = k - 1 + up
                if w_level < 0:
                    continue
                slope, taper = self.slope((*column, k), (i, j, k), axis, (*column, w_level))
                diagonal[i, j, k] += dzw[w_level] * mask[i, j, k] * max(STEEP, mean * taper) / (4 * self.g["dzt"][k])
                slopes[i, j, k, side, up] = taper * slope * mask[i, j, k]
        return diagonal, slopes

    def upper_face(self, axis: int) -> tuple[np.ndarray, np.ndarray]:
        diagonal, slopes = np.zeros((X, Y, Z)), np.zeros((X, Y, Z, 2, 2))
        g, mask, along = self.g, self.f["mask_w"], self.f["diffusivity"]
        for i, j, k in itertools.product(range(2, X - 2), range(2, Y - 2), range(Z - 1)):
            for side, up in itertools.product((0, 1), (0, 1)):
                face = (i - 1 + side, j) if axis == 0 else (i, j - 1 + side)
                slope, taper = self.slope((i, j, k + up), (*face, k + up), axis, (i, j, k))
                if axis == 0:
                    share = g["dxu"][face[0]] / (4 * g["dxt"][i])
                else:
                    share = g["cosu"][face[1]] * g["dyu"][face[1]] / (4 * g["dyt"][j] * g["cost"][j])
                diagonal[i, j, k] += share * along[i, j, k] * taper * slope**2 * mask[i, j, k]
                slopes[i, j, k, side, up] = taper * slope * mask[i, j, k]
        return diagonal, slopes


def test_tensor_is_that_of_a_loop_over_triads(model: Model) -> None:
    loop = Loop(model)
    (k_east, slopes_east), (k_north, slopes_north) = loop.side_face(0), loop.side_face(1)
    (k_top_x, slopes_top_x), (k_top_y, slopes_top_y) = loop.upper_face(0), loop.upper_face(1)
    expected = (k_east, k_north, k_top_x + k_top_y, slopes_east, slopes_north, slopes_top_x, slopes_top_y)
    mixing = model.eval_step()
    for name, tensor, values in zip(mixing._fields, mixing, expected, strict=True):
        assert tensor.any(), name
        torch.testing.assert_close(
            tensor, torch.from_numpy(values), rtol=1e-9, atol=1e-15, msg=lambda text, name=name: f"{name}: {text}"
        )


@pytest.mark.parametrize("points", [10 * 10 * 26, 204 * 204 * 26 // 16])
def test_fields_are_drawn_so_that_both_gentle_and_steep_slopes_occur(points: int) -> None:
    model = load_model_class(find_models().spec("pyhpc_isoneutral_mixing"))("eval", "cpu", points)
    mixing = model.eval_step()
    dzt, dzw = model.network.grid.dzt, model.network.grid.dzw
    steep_only = STEEP * 2 * (dzw + torch.cat([dzw[..., :1] * 0, dzw[..., :-1]], dim=-1)) / (4 * dzt)
    water = mixing.k_north > 0
    mixed_along_slopes = (mixing.k_north > steep_only * 1.000001)[water].double().mean()
    assert 0.1 < mixed_along_slopes < 0.99


@pytest.mark.parametrize("points", [26 * 4 * 5, 26 * 31])
def test_a_grid_that_is_all_edge_is_refused(points: int) -> None:
    with pytest.raises(ValueError, match="columns is all edge"):
        load_model_class(find_models().spec("pyhpc_isoneutral_mixing"))("eval", "cpu", points)
