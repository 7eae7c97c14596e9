"""Nodes that run cases on a fake clock, and die when a test says so."""

from __future__ import annotations

import heapq
import itertools
import random
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any

import msgspec

import examples
from examples import CASE, SPEC
from torchzoo import __version__
from torchzoo.case import Case
from torchzoo.machine.facts import MachineInfo
from torchzoo.record import Environment, Record, Skipped
from torchzoo.run.lanes import Lane
from torchzoo.run.plan import Plan, PlannedCase
from torchzoo.run.spread import protocol
from torchzoo.run.spread.controller import Controller
from torchzoo.run.spread.crew import Crew
from torchzoo.run.spread.leases import Leases
from torchzoo.run.spread.nodes import Event, Joined, Lost, Said
from torchzoo.settings import Settings, Stage

PREPARE = protocol.Prepare(models=(), backends=(), import_limit_s=60, models_root="/nowhere")
BEGIN = protocol.Begin(
    host="", settings=Settings(), jobs=1, cases=1, devices=("cpu",), device_indices=None, worlds=(1,)
)


def environment(**changes: Any) -> Environment:
    return examples.environment(**{"torchzoo": __version__, **changes})


def cases(count: int, **changes: Any) -> Plan:
    made = (msgspec.structs.replace(CASE, model=f"m{number}", **changes) for number in range(count))
    return tuple(PlannedCase(case=case, spec=SPEC) for case in made)


def outcome(case: Case, host: str = "") -> Record:
    now = "2026-11-20T10:00:00.000+00:00"
    return Record(case=case, outcome=Skipped(reason=f"run on {host}"), started_at=now, finished_at=now)


@dataclass
class FakeNode:
    """A host with lanes. Each measures one case at a time, for `case_s`."""

    host: str
    lanes: int = 1
    facts: Environment = field(default_factory=environment)
    device: str = "cpu"
    queue: list[Case] = field(default_factory=list)
    busy: dict[int, Case] = field(default_factory=dict)
    is_dead: bool = False
    is_mute: bool = False  # it runs, but nobody hears it
    had: list[Case] = field(default_factory=list)
    told: list[protocol.Request] = field(default_factory=list)


class FakeNodes:
    """The engine, and the clock.

    Args:
        nodes: by name.
        case_s: how long a case takes on a node.
        kills: cases that end each node on which they begin.
        says_lost: whether the engine says that a node is gone; if not, it is only silent.
    """

    def __init__(
        self,
        nodes: dict[str, FakeNode],
        *,
        case_s: Callable[[Case], float] = lambda _: 10.0,
        kills: Iterable[str] = (),
        says_lost: bool = True,
    ) -> None:
        self.nodes = nodes
        self.case_s = case_s
        self.kills = set(kills)
        self.says_lost = says_lost
        self.now_s = 0.0
        self.lost: dict[str, str] = {}
        self.dismissed: list[str] = []
        self._numbers = itertools.count()
        self._due: list[tuple[float, int, Callable[[], None]]] = []
        self._events: list[tuple[str, Event]] = []
        for name in nodes:
            self.join(name)

    @property
    def expected(self) -> int:
        return sum(isinstance(event, Joined) for _, event in self._events)

    def at(self, after_s: float, action: Callable[[], None]) -> None:
        """Do something later."""
        heapq.heappush(self._due, (self.now_s + after_s, next(self._numbers), action))

    def join(self, name: str) -> None:
        self._events.append((name, Joined(host=self.nodes[name].host)))
        self.at(protocol.ALIVE_EVERY_S, lambda: self._alive(name))

    def say(self, name: str, answer: protocol.Answer) -> None:
        if not self.nodes[name].is_mute:
            self._events.append((name, Said(answer=answer)))

    def die(self, name: str, why: str = "somebody pulled the plug") -> None:
        node = self.nodes[name]
        if not node.is_dead:
            node.is_dead = True
            if self.says_lost:
                self._events.append((name, Lost(why=why)))

    # --- what the controller uses ---

    def tell(self, name: str, request: protocol.Request) -> None:
        node = self.nodes[name]
        if node.is_dead:
            return
        node.told.append(request)
        match request:
            case protocol.Prepare():
                machine = MachineInfo(devices={"cpu": 1}, dynamo_backends=(), environment=node.facts)
                self.say(name, protocol.Prepared(machine=machine, missing={}))
            case protocol.Begin():
                lanes = tuple(Lane(device=node.device, cores=(n,), host=node.host) for n in range(node.lanes))
                self.say(
                    name,
                    protocol.Begun(
                        lanes=lanes, most_alive=2 * node.lanes, settings=Settings(), undisturbed_loop_s=0.001
                    ),
                )
            case protocol.Lease():
                node.had += [one.case for one in request.cases]
                node.queue += [one.case for one in request.cases]
                self._start(name)

    def wait(self, timeout_s: float) -> list[tuple[str, Event]]:
        end_s = self.now_s + timeout_s
        while not self._events and self._due and self._due[0][0] <= end_s:
            self.now_s, _, action = heapq.heappop(self._due)
            action()
        if not self._events:
            self.now_s = end_s
        events, self._events = self._events, []
        return events

    def dismiss(self, name: str) -> None:
        self.dismissed.append(name)

    def __enter__(self) -> FakeNodes:
        return self

    def __exit__(self, *_: object) -> None: ...

    # --- what nodes do ---

    def _start(self, name: str) -> None:
        node = self.nodes[name]
        for lane in range(node.lanes):
            if node.is_dead or lane in node.busy or not node.queue:
                continue
            case = node.busy[lane] = node.queue.pop(0)
            self.say(name, protocol.Entered(case=case, lane=Lane(device="cpu", host=node.host), stage=Stage.BUILD))
            if case.model in self.kills:
                self.die(name)
            else:
                self.at(self.case_s(case), lambda lane=lane: self._end(name, lane))  # type: ignore[misc]

    def _end(self, name: str, lane: int) -> None:
        node = self.nodes[name]
        if node.is_dead:
            return
        case = node.busy.pop(lane)
        self.say(name, protocol.Finished(record=outcome(case, node.host), log=""))
        self._start(name)

    def _alive(self, name: str) -> None:
        if not self.nodes[name].is_dead:
            self.say(name, protocol.Alive())
            self.at(protocol.ALIVE_EVERY_S, lambda: self._alive(name))


@dataclass
class Ran:
    """What a run came to."""

    records: list[Record]
    controller: Controller
    said: list[str]


def controller(nodes: FakeNodes, plan: Plan, said: list[str]) -> Controller:
    """A controller over a crew that has begun."""
    crew = Crew(nodes, PREPARE, said.append, now_s=lambda: nodes.now_s)
    crew.gather(lambda member: member.prepared is not None)
    crew.choose(None)
    crew.let_begin(BEGIN)
    crew.gather(lambda member: member.begun is not None)
    return Controller(crew, Leases(plan), keep_log=lambda case, _: f"logs/{case.model}", now_s=lambda: nodes.now_s)


def run(nodes: FakeNodes, plan: Plan) -> Ran:
    said: list[str] = []
    made = controller(nodes, plan, said)
    return Ran(list(made.run()), made, said)


def random_deaths(nodes: FakeNodes, count: int, within_s: float, seed: int) -> None:
    """Some nodes die at random times; some of them come back under another name."""
    chance = random.Random(seed)
    for name in chance.sample(sorted(nodes.nodes), count):
        after_s = chance.uniform(0, within_s)
        nodes.at(after_s, lambda name=name: nodes.die(name))  # type: ignore[misc]
        if chance.random() < 0.5:
            nodes.at(after_s + 30, lambda name=name: _back(nodes, name))  # type: ignore[misc]


def _back(nodes: FakeNodes, name: str) -> None:
    nodes.nodes[f"{name}.1"] = FakeNode(nodes.nodes[name].host, nodes.nodes[name].lanes)
    nodes.join(f"{name}.1")
