"""Who has which case. Every case gets one outcome, whatever becomes of the nodes that it was leased to.

No clock, no process, no network: `torchzoo.run.spread.controller` tells what happened.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from torchzoo.case import Case
from torchzoo.record import Failed, FailureKind, Record
from torchzoo.run.lanes import Lane
from torchzoo.run.plan import Plan, PlannedCase
from torchzoo.run.scheduler import timestamp
from torchzoo.settings import Stage

#: A case that has lost so many nodes while it ran is not tried again.
MOST_DEATHS = 2
#: Nor is one that was leased to so many nodes that were lost, if no word came of how far it was.
MOST_RETURNS = 5


@dataclass
class _Held:
    """A lease."""

    planned: PlannedCase
    granted_at: str
    stage: Stage = Stage.START
    lane: Lane | None = None  # None: no word that it has begun


@dataclass
class _Node:
    host: str
    kind: str
    lanes: tuple[Lane, ...]
    most_alive: int
    held: dict[Case, _Held] = field(default_factory=dict)

    def runs(self, case: Case) -> bool:
        return any(lane.runs(case) for lane in self.lanes)


@dataclass
class _History:
    """What became of a case so far."""

    died_on: list[str] = field(default_factory=list)  # hosts of nodes that were lost while it ran there
    returns: int = 0


class Leases:
    """The cases of a run, and the nodes that have joined.

    Args:
        cases: those without an outcome, in the order in which they are to start.
    """

    def __init__(self, cases: Iterable[PlannedCase]) -> None:
        self._queue = {one.case: one for one in cases}  # in order; leased cases are not in it
        self._left = dict(self._queue)  # all without an outcome
        self._returned: dict[Case, _History] = {}
        self._nodes: dict[str, _Node] = {}
        self._kind_of: dict[Case, str] = {}  # where the repeats of a case are measured
        self._has_outcome: set[Case] = set()  # cases without their repeat

    @property
    def left(self) -> int:
        """How many cases have no outcome."""
        return len(self._left)

    @property
    def nodes(self) -> tuple[str, ...]:
        return tuple(self._nodes)

    @property
    def has_leased(self) -> bool:
        """Whether a node has a case."""
        return any(node.held for node in self._nodes.values())

    def is_node(self, name: str) -> bool:
        return name in self._nodes

    def join(self, name: str, *, host: str, kind: str, lanes: tuple[Lane, ...], most_alive: int) -> None:
        """A node can run cases from now on.

        Args:
            name: of the node. One that comes back after it was lost has another name.
            host: where it is.
            kind: of its machine. The repeats of a case are measured on one kind.
            lanes: what it measures on.
            most_alive: how many cases it works on at once.
        """
        self._nodes[name] = _Node(host, kind, lanes, most_alive)

    def grant(self, name: str) -> Plan:
        """Lease cases to a node: as many as it works on, and one more for each lane while there are many left.

        No node gets more than its share of what is left, so that all end together.
        """
        node = self._nodes[name]
        share = -(-len(self._queue) // len(self._nodes))
        spare = len(node.lanes) if len(self._queue) > len(self._nodes) else 0
        room = min(node.most_alive + spare - len(node.held), share)
        granted: list[PlannedCase] = []
        if room <= 0:
            return ()
        is_suspect_there = any(self._died_on(case) for case in node.held)
        for case, planned in self._queue.items():
            if len(granted) == room:
                break
            is_suspect = bool(self._died_on(case))
            if (is_suspect and is_suspect_there) or not self._may_run(case, node):
                continue
            is_suspect_there = is_suspect_there or is_suspect
            granted.append(planned)
        for planned in granted:
            del self._queue[planned.case]
            self._kind_of[planned.case.first_repeat()] = node.kind
            node.held[planned.case] = _Held(planned, timestamp())
        return tuple(granted)

    def entered(self, name: str, case: Case, lane: Lane, stage: Stage) -> bool:
        """A node's worker began a stage. Returns whether the node has the case."""
        node = self._nodes.get(name)
        if node is None or (held := node.held.get(case)) is None:
            return False
        held.stage, held.lane = stage, lane
        return True

    def accept(self, name: str, record: Record) -> bool:
        """Whether this is a case's first outcome. Then it must be stored, and any later one is refused.

        The node may have lost its lease meanwhile: it was thought to be dead. Its outcome counts all the same.
        """
        if (node := self._nodes.get(name)) is not None:
            node.held.pop(record.case, None)
        if self._left.pop(record.case, None) is None:
            return False
        self._queue.pop(record.case, None)
        self._has_outcome.add(record.case.first_repeat())
        return True

    def lose(self, name: str, why: str) -> list[Record]:
        """A node is gone. Its cases are leased again, first of all; those that lost too many nodes are returned failed.

        Args:
            name: of the node. If it has not joined, or was lost before, nothing happens.
            why: what is known of its end.
        """
        node = self._nodes.pop(name, None)
        if node is None:
            return []
        failed: list[Record] = []
        back: dict[Case, PlannedCase] = {}
        for case, held in node.held.items():
            if case not in self._left:  # another node, thought to be dead, has told its outcome
                continue
            history = self._returned.setdefault(case, _History())
            history.returns += 1
            if held.lane is not None:
                history.died_on.append(node.host)
            if len(history.died_on) < MOST_DEATHS and history.returns < MOST_RETURNS:
                back[case] = held.planned
                continue
            del self._left[case]
            failed.append(_failed(held, history, why))
        self._queue = back | self._queue
        return failed

    def stranded(self) -> list[Case]:
        """The cases that no node may run which has joined."""
        return [case for case in self._queue if not any(self._may_run(case, node) for node in self._nodes.values())]

    def _may_run(self, case: Case, node: _Node) -> bool:
        """Whether the node has a lane for the case, is of its kind, and lies elsewhere if the case lost a node."""
        if not node.runs(case):
            return False
        alone = case.first_repeat()
        kind = self._kind_of.get(alone, node.kind)
        if kind != node.kind and (alone in self._has_outcome or self._is_there(kind, case)):
            return False
        died_on = self._died_on(case)
        return node.host not in died_on or not any(
            other.host not in died_on and other.runs(case) and other.kind == node.kind for other in self._nodes.values()
        )

    def _is_there(self, kind: str, case: Case) -> bool:
        return any(node.kind == kind and node.runs(case) for node in self._nodes.values())

    def _died_on(self, case: Case) -> list[str]:
        history = self._returned.get(case)
        return history.died_on if history is not None else []


def _failed(held: _Held, history: _History, why: str) -> Record:
    if len(history.died_on) >= MOST_DEATHS:
        what = f"the node was lost while it ran the case, on {' and then on '.join(history.died_on)}: {why}"
    else:
        what = f"{history.returns} nodes that had the case were lost: {why}"
    return Record(
        case=held.planned.case,
        outcome=Failed(kind=FailureKind.CRASHED, stage=held.stage, message=what),
        started_at=held.granted_at,
        finished_at=timestamp(),
        lane=held.lane.name if held.lane is not None else None,
    )
