"""Copy the model's optimizers for a candidate, so that eager's keep their options and counters of steps.

A candidate must not change how eager's steps run. If the whole step is compiled, Dynamo moves Adam's counters of steps
to the device, and eager would then wait for the device in each step to read them. So a copy has its own options and
counters, and shares the parameters and moments, which are not in the device's memory twice.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from torch import Tensor
from torch.optim import Optimizer

from torchzoo.model import Model

Step = Callable[[], Any]
#: All attributes of an optimizer.
Attributes = dict[str, Any]

#: The key of an optimizer's state under which PyTorch counts the updates of a parameter.
COUNTER = "step"


def optimizers_of(model: Model) -> list[Optimizer]:
    """Return the optimizers that the model holds, directly or in a list, a tuple or a dict, without duplicates."""
    return list({id(one): one for one in _held(list(vars(model).values()))}.values())


def copy_of(optimizer: Optimizer, **options: Any) -> Attributes:
    """Return the attributes of a copy of the optimizer, with these options and its own counters.

    Counters are on the device if the update is fused or capturable, as in PyTorch.
    """
    groups: list[dict[str, Any]] = [{**group, **options} for group in optimizer.param_groups]
    state: defaultdict[Tensor, dict[str, Any]] = defaultdict(dict)
    for group in groups:
        on_device = bool(group.get("fused") or group.get("capturable"))
        for parameter in group["params"]:
            if parameter in optimizer.state:
                state[parameter] = _with_own_counter(parameter, optimizer.state[parameter], on_device=on_device)
    return {
        **vars(optimizer),
        "param_groups": groups,
        "state": state,
        "defaults": {**optimizer.defaults, **options},
    }


@dataclass
class StepWithCopies:
    """A step during which each optimizer has the attributes of its copy. Exchanging them takes about a microsecond."""

    step: Step
    copies: list[tuple[Optimizer, Attributes]]

    def __call__(self) -> Any:
        self._swap()
        try:
            return self.step()
        finally:
            self._swap()

    def _swap(self) -> None:
        for place, (optimizer, other) in enumerate(self.copies):
            self.copies[place] = (optimizer, optimizer.__dict__)
            optimizer.__dict__ = other


def states_after(model: Model, step: Step) -> list[Mapping[Tensor, dict[str, Any]]]:
    """Return the state of each parameter in each optimizer of the model, or in its copy if the step has one."""
    copies = {id(optimizer): one for optimizer, one in step.copies} if isinstance(step, StepWithCopies) else {}
    return [copies.get(id(optimizer), vars(optimizer))["state"] for optimizer in optimizers_of(model)]


def _with_own_counter(parameter: Tensor, values: dict[str, Any], *, on_device: bool) -> dict[str, Any]:
    counter = values.get(COUNTER)
    if not isinstance(counter, Tensor):
        return dict(values)
    return {**values, COUNTER: counter.detach().to(parameter.device if on_device else "cpu", copy=True)}


def _held(values: Any) -> Iterator[Optimizer]:
    for value in values:
        if isinstance(value, Optimizer):
            yield value
        elif isinstance(value, list | tuple):
            yield from _held(value)
        elif isinstance(value, dict):
            yield from _held(value.values())
