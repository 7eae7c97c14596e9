"""pyhpc_equation_of_state against the check values published with TEOS-10's 48-term toolbox (version 3.01, 2011)."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import numpy as np
import pytest
import torch
from torch import Tensor

from torchzoo.zoo.catalog import find_models, load_model_class

if TYPE_CHECKING:
    from types import ModuleType


@pytest.fixture(scope="module")
def network() -> ModuleType:
    load_model_class(find_models().spec("pyhpc_equation_of_state"))
    return sys.modules["torchzoo_models.pyhpc_equation_of_state.network"]


def float64(*numbers: float) -> Tensor:
    return torch.tensor(numbers, dtype=torch.float64)


# The six points of the examples on the toolbox's pages of gsw_rho and gsw_dynamic_enthalpy.
SALINITY = float64(34.7118, 34.8915, 35.0256, 34.8472, 34.7366, 34.7324)  # g/kg
TEMPERATURE = float64(28.8099, 28.4392, 22.7862, 10.2262, 6.8272, 4.3236)  # degrees Celsius
PRESSURE = float64(10, 50, 125, 250, 600, 1000)  # dbar


def dynamic_enthalpy(network: ModuleType, salinity: Tensor, temperature: Tensor, pressure: Tensor) -> Tensor:
    """Specific volume integrated over pressure by Gauss and Legendre's rule: no closed form in it."""
    nodes, weights = np.polynomial.legendre.leggauss(20)
    total = torch.zeros_like(pressure)
    for node, weight in zip(nodes.tolist(), weights.tolist(), strict=True):
        inside = pressure * (node + 1) / 2
        total = total + 1e4 * pressure / 2 * weight / network.density(network.Config(), salinity, temperature, inside)
    return total


def enthalpy_slope(network: ModuleType, salinity: Tensor, temperature: Tensor, pressure: Tensor) -> Tensor:
    variable = temperature.clone().requires_grad_()
    enthalpy = dynamic_enthalpy(network, salinity, variable, pressure)
    (slope,) = torch.autograd.grad(enthalpy.sum(), variable)
    return slope


def test_density_has_the_published_values(network: ModuleType) -> None:
    published = float64(
        1021.840446566116, 1022.262985174925, 1024.427770449335, 1027.790499661129, 1029.837753532120, 1032.002083264508
    )
    density = network.density(network.Config(), SALINITY, TEMPERATURE, PRESSURE)
    torch.testing.assert_close(density, published, rtol=0, atol=1e-11)


@pytest.mark.parametrize(("dtype", "absolute_error"), [(torch.float64, 1e-8), (torch.float32, 0.2)])
def test_network_is_the_slope_of_dynamic_enthalpy_over_the_whole_batch(
    network: ModuleType, dtype: torch.dtype, absolute_error: float
) -> None:
    model = load_model_class(find_models().spec("pyhpc_equation_of_state"))("eval", "cpu", 26 * 200)
    salinity, temperature = model.batch
    expected = enthalpy_slope(network, salinity, temperature, model.network.pressure.expand_as(salinity))
    slope = model.network.to(dtype)(salinity.to(dtype), temperature.to(dtype))
    assert slope.dtype is dtype
    error = (slope - expected).abs()  # the slopes themselves lie in -3 ... 3 J/(kg K)
    assert error.max() < absolute_error
    assert error.median() < absolute_error / 100


@pytest.mark.parametrize(
    ("points", "shape"), [(1082016, (204, 204, 26)), (104, (2, 2, 26)), (208, (2, 4, 26)), (26, (1, 1, 26))]
)
def test_grid_holds_the_points_asked_for(points: int, shape: tuple[int, int, int]) -> None:
    model_class = load_model_class(find_models().spec("pyhpc_equation_of_state"))
    assert sys.modules[model_class.__module__].grid_shape(points) == shape


@pytest.mark.parametrize(("points", "advice"), [(1048576, "1048554 or 1048580"), (1, "26"), (25, "26")])
def test_a_batch_that_fills_no_columns_is_refused_with_the_nearest_that_does(points: int, advice: str) -> None:
    model_class = load_model_class(find_models().spec("pyhpc_equation_of_state"))
    with pytest.raises(ValueError, match=f"a batch of {points} grid points .*: {advice}$"):
        model_class("eval", "cpu", points)
