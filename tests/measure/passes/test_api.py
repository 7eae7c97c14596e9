"""What a step uses of PyTorch: functions by their public names, operators in forward and backward; and failures."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from torchzoo.measure.passes.api import step_api


def trained(device: str = "cpu") -> Callable[[], torch.Tensor]:
    network = nn.Sequential(nn.Conv2d(3, 4, 3), nn.ReLU(), nn.Flatten(), nn.Linear(16, 2)).to(device)
    inputs, labels = torch.randn(2, 3, 4, 4, device=device), torch.tensor([0, 1], device=device)

    def step() -> torch.Tensor:
        loss = F.cross_entropy(network(inputs), labels)
        loss.backward()
        return loss

    return step


FUNCTIONS = {"conv2d", "relu", "linear", "cross_entropy"}
OPERATORS = {"aten::convolution", "aten::convolution_backward", "aten::addmm", "aten::nll_loss_backward"}


def test_functions_have_public_names_and_operators_are_those_of_forward_and_backward() -> None:
    surface = step_api(trained())
    assert surface.reason == ""
    assert {f"torch.nn.functional.{name}" for name in FUNCTIONS} <= set(surface.functions)
    assert "torch.Tensor.backward" in surface.functions
    assert set(surface.operators) >= OPERATORS
    assert list(surface.functions) == sorted(set(surface.functions))
    assert not any(name.startswith("profiler::") or "." in name for name in surface.operators)


@pytest.mark.gpu
def test_on_a_gpu_operators_of_backward_are_seen_in_autograds_threads() -> None:
    assert set(step_api(trained("cuda")).operators) >= OPERATORS


def test_exactly_what_is_called_is_named() -> None:
    x = torch.ones(4, requires_grad=True)

    def step() -> None:
        y = torch.zeros(4) + x
        torch.autograd.grad(torch.fft.rfft(y).abs().sum(), [x])
        assert x.grad is None

    surface = step_api(step)
    assert set(surface.functions) == {
        "torch.Tensor.abs",
        "torch.Tensor.add",
        "torch.Tensor.grad",
        "torch.Tensor.sum",
        "torch.autograd.grad",
        "torch.fft.rfft",
        "torch.zeros",
    }
    assert {"aten::_fft_r2c", "aten::zeros", "aten::abs"} <= set(surface.operators)


def test_private_functions_are_not_the_api() -> None:
    surface = step_api(lambda: torch._foreach_add_([torch.ones(2)], 1))
    assert surface.functions == ("torch.ones",)
    assert "aten::_foreach_add_" in surface.operators


def test_gradients_that_are_added_up_in_place_are_not_counted_as_the_mode_does_it() -> None:
    x = torch.ones(3, requires_grad=True)

    def step() -> None:
        y = x * 2
        (y.sin().sum() + y.cos().sum() + y.exp().sum()).backward()
        x.grad = None

    surface = step_api(step)
    assert "aten::add" in surface.operators  # forward's own
    in_place = step_api(lambda: torch.autograd.grad((x.sin() * x.cos() * x.exp()).sum(), [x]))
    assert "aten::add_" in in_place.operators
    assert "aten::add" not in in_place.operators


def test_transforms_are_watched_too() -> None:
    weight = torch.randn(3)
    batch = torch.randn(5, 3)

    def loss(w: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
        return (w * x).sum().tanh()

    surface = step_api(lambda: torch.func.vmap(torch.func.grad(loss), in_dims=(None, 0))(weight, batch))
    assert surface.reason == ""
    assert "torch.Tensor.tanh" in surface.functions
    assert {"aten::tanh", "aten::tanh_backward"} <= set(surface.operators)


def test_a_step_that_a_mode_breaks_gives_the_rest_and_says_why() -> None:
    from torch.utils._python_dispatch import _get_current_dispatch_mode

    def step() -> None:
        if _get_current_dispatch_mode() is not None:
            raise RuntimeError("no <modes>\nhere")
        torch.ones(2).exp()

    surface = step_api(step)
    assert surface.operators == ()
    assert set(surface.functions) == {"torch.ones", "torch.Tensor.exp"}
    assert surface.reason == "the step fails under TorchDispatchMode: RuntimeError: no <modes> here"
