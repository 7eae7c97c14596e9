"""Measure the links between devices: the bus bandwidth of large collectives, as nccl-tests defines it."""

from __future__ import annotations

from collections.abc import Callable
from statistics import median
from typing import Any

import torch

from torchzoo.measure.clock import DeviceClock
from torchzoo.measure.process_group import Participant
from torchzoo.stats import bus_factor

#: Bytes of a message, by type of device. On the CPU, gloo copies through sockets.
SIZES = {"cpu": (2**22, 2**24)}
DEFAULT_SIZES = (2**26, 2**28, 2**30)
CALLS = 5
RUNS = 5


class BusParticipant(Participant):
    """A rank that measures collectives."""

    def rates_gb_per_s(self) -> dict[str, float]:
        """Return the best bus bandwidth over several sizes, by collective. All ranks call it at the same time.

        The bandwidth at a size is the median of several runs of consecutive calls.
        """
        rates: dict[str, float] = {}
        clock = DeviceClock(self.device)
        for size in SIZES.get(self.device.type, DEFAULT_SIZES):
            for name, call in self._collectives(size).items():
                moved = bus_factor(name, self.world) * size
                rates[name] = max(rates.get(name, 0.0), moved / _median_s(call, clock) / 1e9)
        return {name: round(rate, 2) for name, rate in rates.items()}

    def _collectives(self, size: int) -> dict[str, Callable[[], Any]]:
        """Return the collectives by name. `size` is that of an all-gather's result and a reduce-scatter's operand."""
        from torch import distributed

        part = torch.ones(size // 4 // self.world, device=self.device)
        whole = torch.ones(part.numel() * self.world, device=self.device)
        return {
            "all_reduce": lambda: distributed.all_reduce(whole),
            "all_gather": lambda: distributed.all_gather_into_tensor(whole, part),
            "reduce_scatter": lambda: distributed.reduce_scatter_tensor(part, whole),
        }


def _median_s(call: Callable[[], Any], clock: DeviceClock) -> float:
    """Return the seconds of one call. The counts are fixed: all ranks must make as many calls."""
    times_s = []
    for _ in range(1 + RUNS):  # the first run does not count
        clock.synchronize()
        began_ns = clock.now_ns()
        for _ in range(CALLS):
            call()
        clock.synchronize()
        times_s.append((clock.now_ns() - began_ns) / 1e9 / CALLS)
    return median(times_s[1:])
