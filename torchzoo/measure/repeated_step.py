"""Compare a model's second step with its first step, for `torchzoo check-model`."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from torchzoo.backends.optimizer_copies import optimizers_of
from torchzoo.case import Mode
from torchzoo.measure.check.randomness import seed_everything
from torchzoo.model import Model
from torchzoo.model.tensors import same, tensors_in
from torchzoo.zoo.catalog import load_model_class
from torchzoo.zoo.contract import copied, state, take_step
from torchzoo.zoo.spec import ModelSpec

#: Outputs of two steps differ if their distance exceeds this part of their norm. Rounding is less.
SAME_STEP = 1e-3


def step_notes(spec: ModelSpec) -> list[str]:
    """Report where a step depends on the steps before it, or writes into its own data, by nature or by mistake.

    Two steps have the same random numbers. In training, weights, buffers and optimizers are reset between them. For a
    large model its small relative is examined, if there is one.
    """
    model_class = load_model_class(spec).small() if spec.large else load_model_class(spec)
    if model_class is None:
        return []
    return [
        f"{mode}: {note}"
        for mode in spec.modes()
        for note in _compare_two_steps(model_class(mode, "cpu", spec.smoke_batch_size))
    ]


def _compare_two_steps(model: Model) -> list[str]:
    before = state(model)
    before = copied({name: tensor for name, tensor in before.items() if tensor.device.type != "meta"})
    taken = []
    for _ in range(2):
        seed_everything(model.seed)
        taken.append([tensor.detach().clone() for tensor in tensors_in(take_step(model))])
        after = state(model)
        written = [name for name in before if name.startswith("batch") and not same(before[name], after.get(name))]
        if model.mode is Mode.TRAIN:
            _set_back(model, before)
    notes = [f"a step writes into {name}: what the next one reads is not what this one read" for name in written]
    difference = max(map(_difference, *taken), default=0.0) if len(taken[0]) == len(taken[1]) else math.inf
    if difference > SAME_STEP:
        notes.append(
            f"the second step's results differ from the first's by {difference:.2g} of their norm, with the same data "
            "and random numbers: a step depends on the ones before it, and what is timed is the mean of unlike steps"
        )
    return notes


@torch.no_grad()
def _set_back(model: Model, before: dict[str, Tensor]) -> None:
    """Reset weights and buffers to their values before, and clear the state of optimizers."""
    for name, tensor in state(model).items():
        if not name.startswith("batch") and name in before:
            tensor.copy_(before[name])
    for optimizer in optimizers_of(model):
        optimizer.state.clear()


def _difference(one: Tensor, other: Tensor) -> float:
    """Return the distance of two tensors as a part of the norm of the first."""
    if one.shape != other.shape:
        return math.inf
    if torch.equal(one, other):
        return 0.0
    wide = torch.complex128 if one.is_complex() else torch.float64
    a, b = (tensor.dequantize() if tensor.is_quantized else tensor for tensor in (one, other))
    a, b = a.to(wide), b.to(wide)
    same_place = (a == b) | (a.isnan() & b.isnan())
    return float(torch.where(same_place, 0, a - b).norm() / a.nan_to_num().norm().clamp_min(1e-30))
