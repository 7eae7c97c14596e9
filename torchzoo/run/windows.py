"""Measuring windows. While one is open, nothing else runs: every other worker on the host is stopped.

Windows come in epochs. An epoch begins when enough cases are ready. Then all workers are stopped (SIGSTOP), and each
lane measures its share of the ready cases, one after the other. A lane that is done goes on with what else is ready
while another one still measures its share. Then the epoch ends and all workers go on. So no case is measured while
another one compiles, on whatever device.

A case with several ranks that is stopped in the middle of a collective keeps its devices busy. So a window on these
devices opens only when each other such case there is at rest: it waits for its window, or is held after it. Held cases
go on when the epoch is over.
"""

from __future__ import annotations

import math
from collections import Counter, deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from torchzoo.case import Case
from torchzoo.run.budget import LaneBudgets
from torchzoo.run.lanes import Lane
from torchzoo.run.workers import Running, Workers
from torchzoo.settings import Stage

#: With several lanes, an epoch waits until each of them has so many cases ready: cores rest while lanes measure, and
#: a lane rests when it has measured its cases and another one has not.
READY_PER_LANE = 3
#: It waits no longer than this for the others, from when a case is ready, and from the end of the epoch before: what
#: an epoch leaves on one lane is not measured alone at once.
PATIENCE_S = 40.0
#: A worker that has not begun to measure so long after its window opened never will.
ANSWER_TO_OPENING_S = 30.0


@dataclass
class Windows:
    """Opens and closes windows for the workers in `running`, which the scheduler adds and removes."""

    workers: Workers
    running: dict[int, Running]
    now_s: Callable[[], float]
    budgets: LaneBudgets
    waiting: dict[int, float] = field(default_factory=dict)  # by ticket, when it asked for a window; in that order
    share: frozenset[int] = frozenset()  # tickets that this epoch measures in any case
    chosen: deque[int] = field(default_factory=deque)  # those of them that it has yet to measure
    open: dict[Lane, int] = field(default_factory=dict)  # the ticket that is measured on each lane
    over: set[int] = field(default_factory=set)  # tickets that have been measured, or were gone before
    held: set[int] = field(
        default_factory=set
    )  # tickets of cases with several ranks that have been measured in this epoch
    in_epoch: bool = False
    epoch_ended_s: float = -math.inf  # the last one

    def ask(self, ticket: int) -> None:
        """The worker is ready to be measured."""
        self.waiting[ticket] = self.now_s()

    def update(self) -> None:
        """Open what may be opened now; begin or end an epoch where it is time. Call it after every change."""
        while True:
            if not self.in_epoch:
                if not self._enough_is_ready():
                    return
                self._begin()
            self._open()
            if self.open:
                return
            self._end()

    def measured(self, ticket: int) -> None:
        """The worker has been measured. A case with several ranks waits for the end of the epoch then."""
        self.close(ticket)
        if self.running[ticket].lane.devices:
            self.held.add(ticket)

    def is_at_rest(self, ticket: int) -> bool:
        """Whether the worker waits: for its window, or for the end of the epoch after it."""
        return ticket in self.waiting or ticket in self.chosen or ticket in self.held

    def close(self, ticket: int) -> None:
        """The worker has been measured, has an outcome, or is gone."""
        self.held.discard(ticket)
        self.over.add(ticket)
        self.waiting.pop(ticket, None)
        if ticket in self.chosen:
            self.chosen.remove(ticket)
        for lane in [lane for lane, holder in self.open.items() if holder == ticket]:
            del self.open[lane]

    def wakes_at_s(self) -> float | None:
        """When `update` must be called even if nothing changes: the patience is over."""
        if self.in_epoch or not (ready := self._ready()):
            return None
        return self._patience_ends_s(ready)

    @property
    def ready_count(self) -> int:
        """How many workers have nothing to do but wait for a window."""
        return len(self.waiting) + len(self.chosen)

    def _ready(self) -> dict[int, float]:
        """Those that wait for nothing but a window, and since when.

        A case of several environments is measured in the order in which it was started.
        """
        first: dict[Case, int] = {}
        for ticket, worker in self.running.items():
            if ticket not in self.over:
                first.setdefault(worker.planned.case, ticket)
        return {
            ticket: since_s
            for ticket, since_s in self.waiting.items()
            if first[self.running[ticket].planned.case] == ticket and not self._other_ranks_move(ticket)
        }

    def _other_ranks_move(self, ticket: int) -> bool:
        """Whether another case with several ranks uses devices of this worker's lane now, or may do so any moment."""
        lane = self.running[ticket].lane
        return any(
            other != ticket and worker.lane.devices and worker.lane.shares_devices(lane) and not self.is_at_rest(other)
            for other, worker in self.running.items()
        )

    def _enough_is_ready(self) -> bool:
        waiting = self._ready()
        if not waiting:
            return False
        if self.now_s() >= self._patience_ends_s(waiting):
            return True
        alive = Counter(worker.lane for ticket, worker in self.running.items() if ticket not in self.over)
        ready = Counter(self.running[ticket].lane for ticket in waiting)
        needed = READY_PER_LANE if len(alive) > 1 else 1
        return all(ready[lane] >= min(needed, count) for lane, count in alive.items())

    def _patience_ends_s(self, ready: dict[int, float]) -> float:
        return max(min(ready.values()), self.epoch_ended_s) + PATIENCE_S

    def _begin(self) -> None:
        """Choose what to measure: on each lane as many cases as the lane with fewest has ready, in their order."""
        self.in_epoch = True
        waiting = self._ready()
        ready = Counter(self.running[ticket].lane for ticket in waiting)
        left = dict.fromkeys(ready, min(ready.values()))
        for ticket in waiting:
            lane = self.running[ticket].lane
            if left[lane]:
                left[lane] -= 1
                del self.waiting[ticket]
                self.chosen.append(ticket)
        self.share = frozenset(self.chosen)

    def _open(self) -> None:
        """Open a window on each lane that has a case left and whose cores no open window uses; stop all others."""
        opening = []
        for ticket in list(self.chosen):
            if self._opens(ticket, self.open):
                self.chosen.remove(ticket)
                opening.append(ticket)
        if self.share & set(self.open.values()):  # the epoch lasts anyway
            for ticket in self._ready():
                if self._opens(ticket, [*self.open, *(self.running[other].lane for other in self.chosen)]):
                    del self.waiting[ticket]
                    opening.append(ticket)
        for ticket in self.running:
            if self.open and ticket not in self.open.values():
                self._pause(ticket)
        for ticket in opening:
            self._resume(ticket)
            self.workers.proceed(ticket, Stage.MEASURE, self.budgets.open(ticket, self.running[ticket].lane))
            self.running[ticket].deadline_s = self.now_s() + ANSWER_TO_OPENING_S

    def _opens(self, ticket: int, before: Iterable[Lane]) -> bool:
        """Note that the case's window is open, unless its lane shares cores with one of the lanes `before` it."""
        lane = self.running[ticket].lane
        if any(lane.shares_cores(other) for other in before):
            return False
        self.open[lane] = ticket
        return True

    def _end(self) -> None:
        self.in_epoch, self.epoch_ended_s = False, self.now_s()
        for ticket in self.running:
            self._resume(ticket)
        for ticket in self.held & set(self.running):
            self.workers.proceed(ticket, Stage.EXAMINE)
        self.held.clear()

    def _pause(self, ticket: int) -> None:
        worker = self.running[ticket]
        if worker.paused_at_s is None:
            self.workers.pause(ticket)
            worker.paused_at_s = self.now_s()

    def _resume(self, ticket: int) -> None:
        worker = self.running[ticket]
        if worker.paused_at_s is not None:
            stopped_s = self.now_s() - worker.paused_at_s
            worker.deadline_s += stopped_s
            worker.paused_s += stopped_s
            worker.paused_at_s = None
            self.workers.resume(ticket)
