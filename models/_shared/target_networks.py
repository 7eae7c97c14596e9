"""Target networks: frozen copies of a network that follow it slowly, as a moving average of its parameters."""

from __future__ import annotations

from copy import deepcopy
from typing import TypeVar

from torch import nn
from torch.optim.swa_utils import get_ema_multi_avg_fn

_Network = TypeVar("_Network", bound=nn.Module)


def frozen_copy(network: _Network) -> _Network:
    """A copy of a network that no optimizer trains."""
    return deepcopy(network).requires_grad_(requires_grad=False)


class MovingAverage:
    """Moves the parameters of a target network towards those of its source. A share of `decay` stays as it was."""

    def __init__(self, decay: float) -> None:
        self.average = get_ema_multi_avg_fn(decay)  # type: ignore[no-untyped-call]

    def follow(self, target: nn.Module, source: nn.Module) -> None:
        """Make one move."""
        self.average(list(target.parameters()), list(source.parameters()), None)
