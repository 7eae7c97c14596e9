"""Spreads the cases of a run over nodes, and stores every outcome once, whatever becomes of the nodes."""

from __future__ import annotations

import time
from collections.abc import Callable, Generator, Iterator

import msgspec

from torchzoo.case import Case
from torchzoo.record import Failed, Record
from torchzoo.run.interrupts import Interrupts
from torchzoo.run.lanes import Lane
from torchzoo.run.spread import protocol
from torchzoo.run.spread.crew import Crew, Member, NodesGone
from torchzoo.run.spread.leases import Leases
from torchzoo.run.spread.nodes import Lost, Said
from torchzoo.settings import Stage

WAIT_S = 1.0  # at most: an interrupt is seen so late
CHECK_EVERY_S = 5.0  # whether a node is left for each case


class Controller:
    """Gives cases to the nodes of a crew that has begun, and takes their outcomes.

    Args:
        crew: the nodes.
        leases: the cases.
        keep_log: keeps what a worker printed; returns the path.
        on_stage: called when a worker begins a stage.
        on_begun: called when a node has begun.
        now_s: a monotonic clock.
    """

    def __init__(
        self,
        crew: Crew,
        leases: Leases,
        *,
        keep_log: Callable[[Case, str], str],
        on_stage: Callable[[Case, Lane, Stage], None] = lambda *_: None,
        on_begun: Callable[[Member], None] = lambda *_: None,
        now_s: Callable[[], float] = time.monotonic,
    ) -> None:
        self._crew = crew
        self._leases = leases
        self._keep_log = keep_log
        self._on_stage = on_stage
        self._on_begun = on_begun
        self._now_s = now_s
        self._refused = 0
        self._hungry: set[str] = set()  # nodes that may have room for more cases since they were last given some

    @property
    def refused(self) -> int:
        """How many outcomes came of cases that had one."""
        return self._refused

    def run(self) -> Generator[Record]:
        """Yield the first outcome of each case when it comes.

        Raises:
            NodesGone: no node is left that may run one of the cases.
            KeyboardInterrupt: SIGINT or SIGTERM came.
        """
        for name, member in self._crew.members.items():
            if member.begun is not None:
                self._join(name, member, member.begun)
        checked_s = self._now_s()
        with Interrupts() as interrupts:
            while self._leases.left:
                self._grant()
                events = self._crew.wait(WAIT_S)
                if not events or self._now_s() >= checked_s + CHECK_EVERY_S:
                    checked_s = self._now_s()
                    self._check_that_nodes_are_left()
                for name, event in events:
                    match event:
                        case Lost(why=why):
                            yield from self._leases.lose(name, why)
                            self._hungry.update(self._leases.nodes)
                        case Said(answer=answer):
                            yield from self._heard(name, answer)
                if interrupts.came:
                    raise KeyboardInterrupt

    def _heard(self, name: str, answer: protocol.Answer) -> Iterator[Record]:
        match answer:
            case protocol.Begun() if name in self._crew.members:
                self._join(name, self._crew.members[name], answer)
            case protocol.Entered(case=case, lane=lane, stage=stage):
                if self._leases.entered(name, case, lane, stage):
                    self._on_stage(case, lane, stage)
            case protocol.Alive():
                self._hungry.add(name)
            case protocol.Finished(record=record, log=log):
                self._hungry.add(name)
                if self._leases.accept(name, record):
                    yield self._with_log(record, log)
                else:
                    self._refused += 1

    def _join(self, name: str, member: Member, begun: protocol.Begun) -> None:
        if self._leases.is_node(name):
            return
        kind = "; ".join(f"{fact} {value}" for fact, value in member.facts)
        self._leases.join(name, host=member.host, kind=kind, lanes=begun.lanes, most_alive=begun.most_alive)
        self._hungry.add(name)
        self._on_begun(member)

    def _grant(self) -> None:
        hungry = [name for name in self._leases.nodes if name in self._hungry] if self._hungry else []
        self._hungry.clear()
        for name in hungry:
            if cases := self._leases.grant(name):
                self._crew.nodes.tell(name, protocol.Lease(cases=cases))

    def _check_that_nodes_are_left(self) -> None:
        if self._crew.nodes.expected or any(m.begun is None for m in self._crew.members.values()):
            return  # one may come that runs what the others do not
        if not self._leases.nodes:
            raise NodesGone(f"all nodes are gone, and {self._leases.left} cases have no outcome: go on with --resume")
        if not self._leases.has_leased and (stranded := self._leases.stranded()):
            raise NodesGone(
                f"no node is left that may run {stranded[0].label()}; {self._leases.left} cases have no outcome: go on "
                "with --resume"
            )

    def _with_log(self, record: Record, log: str) -> Record:
        """The record with the path of its log here."""
        if not isinstance(record.outcome, Failed) or not record.outcome.log:
            return record
        path = self._keep_log(record.case, log)
        return msgspec.structs.replace(record, outcome=msgspec.structs.replace(record.outcome, log=path))
