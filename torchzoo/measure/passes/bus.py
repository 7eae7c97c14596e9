"""What the links between devices reach: the bus bandwidth of large collectives, as nccl-tests counts it."""

from __future__ import annotations

from collections.abc import Callable
from statistics import median
from typing import Any

import torch

from torchzoo.measure.clock import DeviceClock
from torchzoo.measure.process_group import Participant
from torchzoo.stats import bus_factor

#: Bytes of one message, by type of device. On the CPU, gloo copies through sockets.
SIZES = {"cpu": (2**22, 2**24)}
DEFAULT_SIZES = (2**26, 2**28, 2**30)
CALLS = 5
RUNS = 5


class BusParticipant(Participant):
    """One rank that measures collectives."""

    def rates_gb_per_s(self) -> dict[str, float]:
        """The best bus bandwidth over several sizes, by collective. All ranks call it at the same time.

        Each is the median of several runs of some calls in a row, without a pause between them.
        """
        rates: dict[str, float] = {}
        clock = DeviceClock(self.device)
        for size in SIZES.get(self.device.type, DEFAULT_SIZES):
            for name, call in self._collectives(size).items():
                moved = bus_factor(name, self.world) * size
                rates[name] = max(rates.get(name, 0.0), moved / _median_s(call, clock) / 1e9)
        return {name: round(rate, 2) for name, rate in rates.items()}

    def _collectives(self, size: int) -> dict[str, Callable[[], Any]]:
        """`size` is that of the whole: what an all-gather makes, and what a reduce-scatter starts from."""
        from torch import distributed

        part = torch.ones(size // 4 // self.world, device=self.device)
        whole = torch.ones(part.numel() * self.world, device=self.device)
        return {
            "all_reduce": lambda: distributed.all_reduce(whole),
            "all_gather": lambda: distributed.all_gather_into_tensor(whole, part),
            "reduce_scatter": lambda: distributed.reduce_scatter_tensor(part, whole),
        }


def _median_s(call: Callable[[], Any], clock: DeviceClock) -> float:
    """Seconds that one call takes. The counts are fixed: all ranks must make as many calls."""
    times_s = []
    for _ in range(1 + RUNS):  # the first does not count
        clock.synchronize()
        began_ns = clock.now_ns()
        for _ in range(CALLS):
            call()
        clock.synchronize()
        times_s.append((clock.now_ns() - began_ns) / 1e9 / CALLS)
    return median(times_s[1:])
