"""A fixed work of the host, timed beside a model's steps: the unit of the host's part of a step.

What the host does for a step takes as many times as long on another host as this work does, within some percent
(`benchmarks/host_reference.py` compares such works). The work is a training step of a network so small that computing
takes no time: calls of modules, operators, autograd, launches.
"""

from __future__ import annotations

import time

import torch
from torch import Tensor, nn
from torch.nn import functional

from torchzoo.devices import device_of
from torchzoo.measure.clock import Clock

LAYERS, WIDTH = 6, 16
WARM_UP = 5


class HostReference:
    """The reference work on a device, and the CPU time of steps that run on the CPU.

    On an accelerator the host's time is wall time: the core is its own. On the CPU all time is the host's, and other
    processes may share the cores, so CPU time is taken.
    """

    def __init__(self, device: torch.device, clock: Clock) -> None:
        self._clock = clock
        self._is_asynchronous = device_of(device).is_asynchronous
        self._network = nn.Sequential(*(_Layer(device) for _ in range(LAYERS)))
        self._batch = torch.ones(4, WIDTH, device=device)

    def warm_up(self) -> None:
        """Take the work some times: the first ones take longer."""
        for _ in range(WARM_UP):
            self._work()

    def cpu_s(self) -> float | None:
        """Return the CPU time of this process so far; None on an accelerator."""
        return None if self._is_asynchronous else time.process_time()

    def take_s(self) -> float:
        """Take the work once, and return the seconds until its call returned: CPU time on the CPU, else wall time."""
        self._clock.synchronize()
        now_ns = self._clock.now_ns if self._is_asynchronous else time.thread_time_ns
        began_ns = now_ns()
        self._work()
        return (now_ns() - began_ns) / 1e9

    def _work(self) -> None:
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
