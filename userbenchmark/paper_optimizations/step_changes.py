"""Change one thing of the model's own step without compiling: the reset of gradients, or an optimizer's update.

The changes are the optimizations of the TorchBench paper (Hao et al., 2023, arXiv:2304.14226, section 4.1), in their
new and in their old form. A changed step works on the parameters of the model's own step.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from importlib import import_module
from typing import Any

import torch
from torch import Tensor

from torchzoo.backends import NotRunnable
from torchzoo.backends.optimizer_copies import Step, StepWithCopies, copy_of, optimizers_of
from torchzoo.case import Backend
from torchzoo.model import Model


def changed_step(model: Model, step: Step, backend: Backend) -> Step:
    """Return the step of `model` with the change that the backend names.

    Raises:
        NotRunnable: the change does not apply to the model.
    """
    return _CHANGES[backend.name.rpartition("/")[2]](model, step, backend.option)


def _optimizer(model: Model, step: Step, option: str | None) -> Step:
    """Update by another implementation of the optimizers."""
    flags = {
        "for-loop": {"foreach": False, "fused": False},
        "foreach": {"foreach": True, "fused": False},
        "fused": {"foreach": False, "fused": True},
    }[option or "foreach"]
    copies = []
    for optimizer in _optimizers_of(model):
        name = type(optimizer).__name__
        lacking = [flag for flag, is_on in flags.items() if is_on and flag not in optimizer.defaults]
        if lacking:
            raise NotRunnable(f"{name} has no {lacking[0]} implementation")
        if not flags["fused"] and any(_rate_is_tensor(group) for group in optimizer.param_groups):
            raise NotRunnable(f"the learning rate of its {name} is a tensor, which only a fused implementation reads")
        known = {flag: is_on for flag, is_on in flags.items() if flag in optimizer.defaults}
        other = copy_of(optimizer, **known)
        other["_step_supports_amp_scaling"] = flags["fused"]  # GradScaler leaves scaling to fused optimizers
        if any(flags.values()):
            otherwise = f"{name} has no {option or 'foreach'} implementation for sparse gradients"
            _check_first_update(optimizer, other, otherwise)
        copies.append((optimizer, other))
    return StepWithCopies(step, copies)


def _rate_is_tensor(group: dict[str, Any]) -> bool:
    """Whether foreach refuses the group's learning rate, which a loop would read from the device."""
    return isinstance(group["lr"], Tensor) and not group.get("capturable")


def _check_first_update(optimizer: torch.optim.Optimizer, other: dict[str, Any], otherwise: str) -> None:
    """Make the first update of the copy check for sparse gradients, which do not exist before it.

    Fused implementations raise for them, and foreach ones update all parameters of that device and dtype one by one.
    """

    def first(*args: Any, **kwargs: Any) -> Any:
        if any(gradient.is_sparse for gradient in _gradients(optimizer)):
            raise NotRunnable(otherwise)
        del other["step"]
        if own is not None:
            other["step"] = own
        return optimizer.step(*args, **kwargs)

    own = other.get("step")  # a learning-rate scheduler puts one there
    other["step"] = first


def _zero_grad(model: Model, step: Step, option: str | None) -> Step:
    """Reset gradients by a kernel for each, by a kernel for each device and dtype, or set them to None.

    PyTorch's `zero_grad` does all three, with foreach if the optimizer's defaults say so.
    """
    to_none, foreach = {"kernels": (False, False), "foreach": (False, True), "none": (True, False)}[option or "foreach"]
    was_reset: set[int] = set()

    def bound(optimizer: torch.optim.Optimizer) -> Callable[..., None]:
        def zero_grad(set_to_none: bool = True) -> None:  # noqa: FBT001, FBT002  the signature is PyTorch's
            del set_to_none
            was_reset.add(id(optimizer))
            type(optimizer).zero_grad(optimizer, set_to_none=to_none)

        return zero_grad

    copies = []
    for one in _optimizers_of(model):
        defaults = {**one.defaults, "foreach": foreach, "fused": False}
        copies.append((one, {**vars(one), "zero_grad": bound(one), "defaults": defaults}))
    return _if(was_reset, StepWithCopies(step, copies), "its step does not reset gradients by its optimizers")


def _gradients(optimizer: torch.optim.Optimizer) -> Iterator[Tensor]:
    for group in optimizer.param_groups:
        for parameter in group["params"]:
            if parameter.grad is not None:
                yield parameter.grad


def _rsqrt(model: Model, step: Step, option: str | None) -> Step:
    """Compute 1 / sqrt of a number on the device, in each attention layer of Reformer, as in the paper."""
    del model, option
    module: Any = import_module("transformers.models.reformer.modeling_reformer")
    numpy, before = module.np, _NumpyWithSqrtOnDevice(module.np)

    def changed() -> Any:
        module.np = before
        try:
            return step()
        finally:
            module.np = numpy

    return _if(before.divided, changed, "the library no longer divides by a square root of NumPy's")


def _if(has_changed: Collection[Any], step: Step, otherwise: str) -> Step:
    """Return the step with a check that it changed something: a change without effect is not measured."""

    def checked() -> Any:
        result = step()
        if not has_changed:
            raise NotRunnable(otherwise)
        return result

    return checked


class _NumpyWithSqrtOnDevice:
    """NumPy with a `sqrt` that is computed on the device of the vectors that are divided by it."""

    def __init__(self, numpy: Any) -> None:
        self._numpy = numpy
        self.divided: set[float] = set()  # the numbers by whose roots vectors were divided

    def __getattr__(self, name: str) -> Any:
        return getattr(self._numpy, name)

    def sqrt(self, number: float) -> Any:
        return _DeviceSqrt(number, self.divided)


class _DeviceSqrt:
    """The square root of a number, as a divisor of vectors."""

    def __init__(self, number: float, divided: set[float]) -> None:
        self._number, self._divided = number, divided

    def __rtruediv__(self, vectors: Tensor) -> Tensor:
        self._divided.add(self._number)
        return vectors * torch.rsqrt(torch.tensor(self._number, device=vectors.device, dtype=vectors.dtype))


def _offload(model: Model, step: Step, option: str | None) -> Step:
    """Move all networks to the host and back before each step, as where several of them share a device's memory."""
    del option

    def changed() -> Any:
        for network in model.networks().values():
            network.to("cpu")
            network.to(model.device)
        return step()

    return changed


_CHANGES: dict[str, Callable[[Model, Step, str | None], Step]] = {
    "optimizer": _optimizer,
    "zero_grad": _zero_grad,
    "rsqrt": _rsqrt,
    "offload": _offload,
}


def _optimizers_of(model: Model) -> list[torch.optim.Optimizer]:
    """Return the optimizers that the model holds.

    Raises:
        NotRunnable: the model holds no optimizer, or one that is not PyTorch's.
    """
    found = optimizers_of(model)
    if not found:
        raise NotRunnable("the model holds no optimizer of torch.optim")
    for one in found:
        if not type(one).__module__.startswith("torch.optim"):
            raise NotRunnable(
                f"its optimizer is {type(one).__name__} of {type(one).__module__}, not one of torch.optim"
            )
    return found
