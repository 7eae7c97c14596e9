"""A fixed work of the host, timed beside a model's steps: the unit of the host's part of a step.

What the host does for a step takes as many times as long on another host as this work does, within some percent
(`benchmarks/host_reference.py` compares such works). The work is a step of a network so small that computing takes no
time: calls of modules, operators, launches, and in training autograd with its thread.
"""

from __future__ import annotations

import time
from statistics import median

import torch
from torch import Tensor, nn
from torch.nn import functional

from torchzoo.measure.clock import Clock

#: Forward and backward of so many layers take about as long as forward of so many without autograd.
TRAINED_LAYERS, EVALUATED_LAYERS = 6, 18
WIDTH = 16
WARM_UP = 5
#: After a block of steps the work is taken for at most this share of the block's time, and so many times; once anyway.
SHARE, MOST_TIMES = 0.2, 15


class HostReference:
    """The reference work on a device, for steps that train or that do not.

    Like the host's part of a step it is measured as CPU time, which does not count the time of other processes that
    share the core.
    """

    def __init__(self, device: torch.device, clock: Clock, *, trains: bool) -> None:
        self._synchronize = clock.synchronize
        self._trains = trains
        layers = TRAINED_LAYERS if trains else EVALUATED_LAYERS
        self._network = nn.Sequential(*(_Layer(device) for _ in range(layers)))
        self._batch = torch.ones(4, WIDTH, device=device)

    def warm_up(self) -> None:
        """Take the work some times: the first ones take longer."""
        for _ in range(WARM_UP):
            self._work()

    def take_s(self, beside_s: float = 0.0) -> float:
        """Return the CPU time of this process until a call of the work returned.

        After a block of `beside_s` the work is taken as often as `SHARE` of that time allows, and the median counts.
        """
        times_s = [self._once_s()]
        while len(times_s) < MOST_TIMES and sum(times_s) + times_s[0] < SHARE * beside_s:
            times_s.append(self._once_s())
        return median(times_s)

    def _once_s(self) -> float:
        self._synchronize()
        began_ns = time.process_time_ns()
        self._work()
        return (time.process_time_ns() - began_ns) / 1e9

    def _work(self) -> None:
        if not self._trains:
            with torch.no_grad():
                self._network(self._batch)
            return
        self._network(self._batch).sum().backward()
        for parameter in self._network.parameters():
            parameter.grad = None


class _Layer(nn.Module):
    """Weights are constants, since random numbers would move the model's."""

    def __init__(self, device: torch.device) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.full((WIDTH, WIDTH), 1 / WIDTH, device=device))
        self.bias = nn.Parameter(torch.zeros(WIDTH, device=device))

    def forward(self, batch: Tensor) -> Tensor:
        return functional.gelu(functional.layer_norm(functional.linear(batch, self.weight, self.bias), (WIDTH,)))
