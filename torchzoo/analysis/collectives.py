"""The collectives of parallel steps: their bandwidth, and how much of a step nothing covers."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from torchzoo import stats
from torchzoo.analysis.peaks import bus_ceiling_bytes_per_s
from torchzoo.record import Collective, CommunicationStep
from torchzoo.stats import Estimate


class CollectiveFigures(msgspec.Struct, frozen=True, kw_only=True):
    """The collectives of one kind in a step."""

    name: str
    calls: int
    bytes: int | None  # None: the profiler did not tell
    bus_bytes_per_s: Estimate | None
    ceiling_bytes_per_s: float | None  # what `torchzoo doctor --peaks` measured on as many devices


def collective_figures(found: Sequence[Collective], world: int, device_name: str) -> list[CollectiveFigures]:
    """The figures of each kind, the one with most bytes first.

    Raises:
        PeaksFileError: the file of measured peaks can't be read.
    """
    figures = [
        CollectiveFigures(
            name=one.name,
            calls=one.calls,
            bytes=one.bytes,
            bus_bytes_per_s=_bus_bytes_per_s(one, world),
            ceiling_bytes_per_s=bus_ceiling_bytes_per_s(device_name, world, one.name),
        )
        for one in found
    ]
    return sorted(figures, key=lambda one: -(one.bytes or 0))


def _bus_bytes_per_s(one: Collective, world: int) -> Estimate | None:
    if not one.bytes or not one.step_s or min(one.step_s) <= 0:
        return None
    moved = stats.bus_factor(one.name, world) * one.bytes
    return stats.median_estimate([moved / step_s for step_s in one.step_s])


def exposed_share(steps: Sequence[CommunicationStep]) -> Estimate | None:
    """The share of a rank's step in which a collective runs and nothing computes; None without profiled steps."""
    return stats.median_estimate([step.exposed_s / step.wall_s for step in steps]) if steps else None
