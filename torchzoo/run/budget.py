"""The budget of a run: how long the steps of all cases on a lane are timed.

Each process has an equal share. Cases that converge sooner leave time of theirs to later ones of the lane, which go
beyond their share only if that brings their interval down to the target.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from fractions import Fraction
from typing import Literal

from torchzoo.bounds import LimitSeconds
from torchzoo.record import Measured
from torchzoo.run.lanes import Lane
from torchzoo.run.plan import PlannedCase
from torchzoo.settings import Settings

#: The seconds of all processes of a lane together; `auto`: they follow from the number of processes.
Budget = LimitSeconds | Literal["auto"]

#: Of `auto`: the seconds that each process has, and those that all processes of a lane divide.
EACH_S, ALL_S = 0.5, 10.0


def processes_in_a_row(planned: Iterable[PlannedCase], lanes: Sequence[Lane]) -> int:
    """Return how many of these processes are timed one after the other, on the lane that has most.

    Processes on lanes that share cores are timed one after the other, too.
    """
    loads = dict.fromkeys(lanes, Fraction())
    for one in planned:
        able = [lane for lane in lanes if one.resolved is None and lane.runs(one.case)]
        for lane in able:
            loads[lane] += Fraction(1, len(able))
    rows = (
        sum(load for other, load in loads.items() if other.host == lane.host and other.shares_cores(lane))
        for lane in lanes
    )
    return math.ceil(max(rows, default=0))


def share_s(
    budget: Budget | None, settings: Settings, planned: Iterable[PlannedCase], lanes: Sequence[Lane]
) -> float | None:
    """Return the share of the budget that each process has; None where each may take the settings' time limit."""
    processes = processes_in_a_row(planned, lanes)
    if budget is None or not processes or not settings.is_timed:
        return None
    share = EACH_S + ALL_S / processes if isinstance(budget, str) else budget / processes
    return share if share < settings.time_limit_s else None


class LaneBudgets:
    """The seconds of the budget that each lane has left. Without a share in the settings there is no budget.

    Each window adds a share, and its blocks take away what they took. Beyond its share, a case may use half of what is
    left. A lane begins with one share more, so that its first cases, too, can go beyond theirs.
    """

    def __init__(self, settings: Settings) -> None:
        self._limit_s = settings.time_limit_s
        self._share_s = settings.share_s
        self._left_s: dict[Lane, float] = {}
        self._open: dict[int, Lane] = {}

    def open(self, ticket: int, lane: Lane) -> float | None:
        """Return the most time that a worker may time steps in its window; None: as its settings say."""
        if self._share_s is None:
            return None
        spare_s = self._left_s.get(lane, self._share_s)
        self._left_s[lane] = spare_s + self._share_s
        self._open[ticket] = lane
        return min(self._limit_s, self._share_s + max(0.0, spare_s) / 2)

    def spend(self, ticket: int, measured: Measured) -> None:
        """Take away what the timing of a worker took. Only the first call for its window counts."""
        lane = self._open.pop(ticket, None)
        if lane is not None:
            redone = measured.host.redone if measured.host is not None else ()
            self._left_s[lane] -= sum(sum(block.samples_s) for block in (*measured.blocks, *redone))
