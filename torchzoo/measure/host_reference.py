"""A fixed work of the host, timed beside a model's steps: the unit of the host's part of a step.

If another host takes twice as long for this work, it takes about twice as long for its part of a step, too
(`benchmarks/host_reference.py` compares such works). The work is a step of a network so small that computing takes no
time: calls of modules, operators, launches, and in training autograd with its thread.
"""

from __future__ import annotations

from statistics import median

import torch
from torch import Tensor, nn
from torch.nn import functional

from torchzoo.measure.clock import Clock, issuing_clock

#: By whether the step trains, on an accelerator and on the CPU: so many layers take a host about a millisecond.
LAYERS = {True: (6, 12), False: (18, 60)}
WIDTH = 16
WARM_UP = 5
#: After a block of steps the work is taken for at most this share of the block's time, and so many times; once anyway.
SHARE, MOST_TIMES = 0.2, 15


class HostReference:
    """The reference work on a device, for steps that train or that do not.

    Like the host's part of a step it is measured as CPU time of the threads that issue it (`issuing_clock`), which does
    not count the time of other processes that share the core.
    """

    def __init__(self, device: torch.device, clock: Clock, *, trains: bool) -> None:
        self._synchronize, self._now_ns = clock.synchronize, issuing_clock(clock)
        self._trains = trains
        layers = LAYERS[trains][0 if clock.is_asynchronous else 1]
        self._network = nn.Sequential(*(_Layer(device, normalizes=clock.is_asynchronous) for _ in range(layers)))
        self._batch = torch.ones(4, WIDTH, device=device)

    def warm_up(self) -> None:
        """Take the work some times: the first ones take longer."""
        for _ in range(WARM_UP):
            self._work()

    def take_s(self, beside_s: float = 0.0) -> float:
        """Return the CPU time until a call of the work returned, in seconds.

        After a block of `beside_s` the work is taken as often as `SHARE` of that time allows, and the median counts.
        """
        times_s = [self._once_s()]
        while len(times_s) < MOST_TIMES and sum(times_s) + times_s[0] < SHARE * beside_s:
            times_s.append(self._once_s())
        return median(times_s)

    def _once_s(self) -> float:
        self._synchronize()
        began_ns = self._now_ns()
        self._work()
        return (self._now_ns() - began_ns) / 1e9

    def _work(self) -> None:
        if not self._trains:
            with torch.no_grad():
                self._network(self._batch)
            return
        self._network(self._batch).sum().backward()
        for parameter in self._network.parameters():
            parameter.grad = None


class _Layer(nn.Module):
    """Weights are constants, since random numbers would move the model's.

    On the CPU nothing is normalised: that operator wakes all threads, and waits for them on busy cores.
    """

    def __init__(self, device: torch.device, *, normalizes: bool) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.full((WIDTH, WIDTH), 1 / WIDTH, device=device))
        self.bias = nn.Parameter(torch.zeros(WIDTH, device=device))
        self.normalizes = normalizes

    def forward(self, batch: Tensor) -> Tensor:
        batch = functional.linear(batch, self.weight, self.bias)
        return functional.gelu(functional.layer_norm(batch, (WIDTH,)) if self.normalizes else batch)
