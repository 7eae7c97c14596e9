"""lennard_jones: the force is minus the energy's gradient, and a step does the work of TorchBench's model."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
import torch

from counted_work import CountedWork
from torchzoo.zoo.catalog import find_models, load_model_class

if TYPE_CHECKING:
    from torchzoo.model import Model


def build(mode: str, batch_size: int) -> Model:
    return load_model_class(find_models().spec("lennard_jones"))(mode, "cpu", batch_size)


def test_force_is_minus_the_gradient_of_the_energy() -> None:
    model = build("eval", 5)
    (vectors,) = model.example_inputs
    energies, forces = model.network(vectors.requires_grad_())
    (gradient,) = torch.autograd.grad(energies.sum(), vectors)
    torch.testing.assert_close(forces, -gradient)


def test_targets_are_energy_and_force_of_the_potential() -> None:
    batch = build("train", 5).batch
    (vectors,), (energies, forces) = batch
    vectors = vectors.double().requires_grad_()
    squared = vectors.square().sum(dim=1, keepdim=True)
    potential = 4 * (squared**-6 - squared**-3)
    (gradient,) = torch.autograd.grad(potential.sum(), vectors)
    torch.testing.assert_close(energies.double(), potential.detach(), rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(forces.double(), -gradient, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize(("mode", "operators", "bytes_moved"), [("train", 222, 12_991_756), ("eval", 43, 4_490_120)])
def test_a_step_does_the_work_of_torchbenchs(mode: str, operators: int, bytes_moved: int) -> None:
    """The second steps of pytorch/benchmark's `models/lennard_jones` at 0e83c44, counted so, evaluation by no_grad."""
    model = build(mode, 1000)
    step = model.train_step if mode == "train" else model.eval_step
    step()
    with CountedWork() as work:
        step()
    assert (work.operators, work.bytes_moved) == (operators, bytes_moved)
