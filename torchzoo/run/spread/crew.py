"""The nodes of a run: each is told what to load, is looked at, and begins if its machine is of the right kind."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

import msgspec

from torchzoo import __version__
from torchzoo.errors import TorchzooError, UsageError
from torchzoo.machine.differences import MachineKind, differences_of_kinds, machine_kind
from torchzoo.record import Host
from torchzoo.run.spread import protocol
from torchzoo.run.spread.nodes import EngineError, Event, Joined, Lost, Nodes, Said

#: When the first node is ready, the others have so long to be ready, too. Later ones join the run that has begun.
PATIENCE_S = 60.0
#: A node that runs cases and has said nothing for so long is given up. It would say something every
#: `protocol.ALIVE_EVERY_S`; a shared folder may show that a minute later.
SILENCE_S = 150.0
#: While a node imports the libraries of all models, it says nothing.
START_LIMIT_S = 1800.0
LOOK_EVERY_S = 5.0  # for nodes that are silent
#: `--host-kind`: take nodes of all kinds.
ANY = "any"


@dataclass
class Member:
    """What is known of a node."""

    host: str
    heard_s: float
    prepared: protocol.Prepared | None = None
    begun: protocol.Begun | None = None

    @property
    def facts(self) -> MachineKind:
        assert self.prepared is not None
        return machine_kind(self.prepared.machine.environment)

    @property
    def is_silent_for_s(self) -> float:
        """How long it may say nothing."""
        return SILENCE_S if self.begun is not None else START_LIMIT_S

    def as_host(self) -> Host:
        """What the run keeps of it."""
        assert self.prepared is not None
        assert self.begun is not None
        return Host(
            name=self.host,
            environment=self.prepared.machine.environment,
            lanes=tuple(lane.name for lane in self.begun.lanes),
            undisturbed_loop_s=self.begun.undisturbed_loop_s,
        )


class Crew:
    """Takes nodes into the run: tells each what to load, looks at its kind, lets it begin.

    Args:
        nodes: of the engine.
        prepare: what a node is told first.
        say: tells the user something, in a line.
        now_s: a monotonic clock.
    """

    def __init__(
        self,
        nodes: Nodes,
        prepare: protocol.Prepare,
        say: Callable[[str], None],
        now_s: Callable[[], float] = time.monotonic,
    ) -> None:
        self.nodes = nodes
        self.members: dict[str, Member] = {}
        self.kinds: tuple[MachineKind, ...] | None = None  # those that take part; None until they are chosen
        self.begin: protocol.Begin | None = None  # None until the plan is made
        self._prepare = prepare
        self._say = say
        self._now_s = now_s
        self._looked_s = now_s()  # for nodes that are silent

    def wait(self, timeout_s: float) -> list[tuple[str, Event]]:
        """What happened to nodes of this crew. Its own part of it is done: new ones prepare and begin.

        A node that has been silent for too long is lost.
        """
        happened: list[tuple[str, Event]] = []
        for name, event in self.nodes.wait(timeout_s):
            match event:
                case Joined(host=host):
                    self.members[name] = Member(host, self._now_s())
                    self.nodes.tell(name, self._prepare)
                    continue
                case Lost(why=why):
                    gone = self.members.pop(name, None)
                    self._say(f"{gone.host} is lost: {why}" if gone else f"a node is not used: {why}")
                case Said(answer=protocol.Refused(message=message)):
                    happened += self._give_up(name, message)
                    continue
                case Said(answer=answer) if name in self.members:
                    self._heard(name, answer)
            happened.append((name, event))
        if self._now_s() >= self._looked_s + LOOK_EVERY_S:
            self._looked_s = self._now_s()
            for name, member in list(self.members.items()):
                if self._now_s() - member.heard_s > member.is_silent_for_s:
                    happened += self._give_up(name, f"it has said nothing for {member.is_silent_for_s:g} s")
        return happened

    def gather(self, is_ready: Callable[[Member], bool]) -> None:
        """Wait until all nodes that are expected are ready, or the first ones for some time.

        Raises:
            EngineError: there is none, and none will come.
        """
        first_s = None
        while True:
            ready = [member for member in self.members.values() if is_ready(member)]
            if ready and first_s is None:
                first_s = self._now_s()
            if ready and len(ready) == len(self.members) and not self.nodes.expected:
                return
            if ready and first_s is not None and self._now_s() - first_s >= PATIENCE_S:
                return
            if not self.members and not self.nodes.expected:
                raise EngineError("no node is ready to run cases; see above")
            self.wait(1.0)

    def choose(self, asked: str | None, needed: Sequence[MachineKind] = ()) -> None:
        """Decide which kinds of machines take part, and dismiss the nodes of other kinds.

        Args:
            asked: the option `--host-kind`.
            needed: the kinds that the run began on; empty for a new run.

        Raises:
            UsageError: the nodes differ and no kind was chosen, or none is of the kind that is asked for.
        """
        there = {facts: self._hosts_of(facts) for facts in dict.fromkeys(m.facts for m in self._prepared())}
        self.kinds = choose_kinds(there, asked, needed)
        for name, member in list(self.members.items()):
            if member.prepared is not None and member.facts not in self.kinds:
                self._dismiss(name, "it is of another kind")

    def let_begin(self, begin: protocol.Begin) -> None:
        """From now on every node of the chosen kinds begins when it is prepared; those that are prepared do so now."""
        self.begin = begin
        for name, member in self.members.items():
            if member.prepared is not None:
                self._tell_to_begin(name, member)

    def _heard(self, name: str, answer: protocol.Answer) -> None:
        member = self.members[name]
        member.heard_s = self._now_s()
        if isinstance(answer, protocol.Begun):
            member.begun = answer
        if not isinstance(answer, protocol.Prepared):
            return
        member.prepared = answer
        version = answer.machine.environment.torchzoo
        if version != __version__:
            self._dismiss(name, f"it has torchzoo {version}, here is {__version__}")
        elif self.kinds is not None and member.facts not in self.kinds:
            self._dismiss(name, f"it is of another kind: {differences_of_kinds([member.facts, *self.kinds])[0]}")
        elif self.begin is not None:
            self._tell_to_begin(name, member)

    def _tell_to_begin(self, name: str, member: Member) -> None:
        assert self.begin is not None
        self.nodes.tell(name, msgspec.structs.replace(self.begin, host=member.host))

    def _give_up(self, name: str, why: str) -> list[tuple[str, Event]]:
        if name not in self.members:
            return []
        self._dismiss(name, why)
        return [(name, Lost(why=why))]

    def _dismiss(self, name: str, why: str) -> None:
        member = self.members.pop(name)
        self._say(f"{member.host} is not used: {why}")
        self.nodes.dismiss(name)

    def _prepared(self) -> list[Member]:
        return [member for member in self.members.values() if member.prepared is not None]

    def _hosts_of(self, facts: MachineKind) -> list[str]:
        return [member.host for member in self._prepared() if member.facts == facts]


def choose_kinds(
    there: dict[MachineKind, list[str]], asked: str | None, needed: Sequence[MachineKind]
) -> tuple[MachineKind, ...]:
    """The kinds that take part.

    Args:
        there: the hosts of each kind.
        asked: words of a kind's facts, `any`, or None.
        needed: the kinds that the run began on; empty for a new run.

    Raises:
        UsageError: see `Crew.choose`.
    """
    kinds = [facts for facts in there if not needed or facts in needed]
    if not kinds:
        here, began = differences_of_kinds([next(iter(there)), needed[0]])
        raise UsageError(f"the run began on another machine or other software: there {began}, here {here}")
    if asked is not None and asked != ANY:
        kinds = [
            kind for kind in kinds if asked.lower() in "; ".join(f"{name} {value}" for name, value in kind).lower()
        ]
    if len(kinds) == 1 or (kinds and (asked == ANY or needed)):
        return tuple(kinds)
    texts = differences_of_kinds(list(there))
    found = "; ".join(f"{_names(hosts)}: {text}" for hosts, text in zip(there.values(), texts, strict=True))
    if asked is not None and not kinds:
        raise UsageError(f"--host-kind {asked}: no such kind among {found}")
    raise UsageError(
        f"the nodes differ ({found}): choose one kind with --host-kind, by a word of it, or mix them with "
        f"--host-kind {ANY}"
    )


def _names(hosts: Iterable[str], most: int = 4) -> str:
    names = list(hosts)
    more = f" and {len(names) - most} more" if len(names) > most else ""
    return f"{', '.join(names[:most])}{more}"


class NodesGone(TorchzooError):
    """No node is left, and cases are. The message is one line that says what to do."""
