"""The ranks of a case. Rank 0 leads: the other ranks do the same at the same time, each with its own shard.

Rank 0 measures as if it were alone. Its variants and its clock forward each call: a step is a step of all ranks, and a
synchronisation waits for all devices. So all ranks agree on the number of steps, and a step takes as long as that of
the slowest rank.
"""

from __future__ import annotations

import contextlib
import pickle
import select
import time
from collections.abc import Callable, Iterator, Sequence
from functools import cached_property, partial
from multiprocessing.connection import Connection
from typing import Any, Concatenate, Generic, ParamSpec, TypeVar

import torch

from torchzoo.measure.case_rank import CaseRank
from torchzoo.measure.clock import DeviceClock
from torchzoo.measure.host import WAIT_S, HostGate
from torchzoo.measure.process_group import Participant
from torchzoo.measure.variant import Variant

#: A process that sleeps wakes up some 50 microseconds late. So a waiting process polls for so long before it sleeps.
LOOK_S = 0.02

_STEP, _SELECT, _SYNCHRONIZE, _CALL = b"s", b"v", b"y", b"c"


class RankGone(RuntimeError):
    """Another rank has ended. The report of that rank says why."""


class Line:
    """A connection between rank 0 and another rank."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._poll = select.poll()
        self._poll.register(connection.fileno(), select.POLLIN)

    def send(self, message: bytes) -> None:
        self._connection.send_bytes(message)

    def receive(self) -> bytes:
        """Return the next message; raise `EOFError` if the other rank is gone."""
        began = time.perf_counter()
        while not self._poll.poll(0):
            if time.perf_counter() - began > LOOK_S:
                break
        return self._connection.recv_bytes()


P = ParamSpec("P")
OwnT = TypeVar("OwnT", bound=Participant)
FoundT = TypeVar("FoundT")


class Ranks(Generic[OwnT]):
    """All ranks, as rank 0 sees them.

    Args:
        own: rank 0 itself.
        lines: connections to the other ranks, in their order.
    """

    def __init__(self, own: OwnT, lines: Sequence[Line] = ()) -> None:
        self.own = own
        self._lines = lines

    @property
    def size(self) -> int:
        return 1 + len(self._lines)

    def devices(self) -> list[torch.device]:
        """Return the devices of all ranks."""
        return [torch.device(name) for name in self.everywhere(Participant.device_name)]

    def everywhere(
        self, function: Callable[Concatenate[OwnT, P], FoundT], *arguments: P.args, **named: P.kwargs
    ) -> list[FoundT]:
        """Call a method of a rank, or a function of a module whose first argument is a rank, in all ranks at once.

        Return the results in the order of ranks.
        """
        if self._lines:
            self.tell(_CALL + pickle.dumps((function, arguments, named)))
        own = function(self.own, *arguments, **named)
        return [own, *(pickle.loads(answer) for answer in self.answers())]  # noqa: S301  of our own process

    def meet(self) -> None:
        """Let all ranks join one process group."""
        port = self.own.meet()
        self.tell(_CALL + pickle.dumps((Participant.meet, (port,), {})))
        self.answers()
        self.everywhere(Participant.join)

    def tell(self, message: bytes) -> None:
        for line in self._lines:
            try:
                line.send(message)
            except OSError as error:
                raise RankGone from error

    def answers(self) -> list[bytes]:
        try:
            return [line.receive() for line in self._lines]
        except (EOFError, OSError) as error:
            raise RankGone from error


class CaseRanks(Ranks[CaseRank]):
    """All ranks of a case, of which there may be one, as rank 0 sees them."""

    def variant(self, name: str) -> Variant:
        """Return the variant of rank 0, with a step that all ranks take."""
        own = self.own.variants[name]
        if not self._lines:
            return own
        return Variant(
            name=name,
            step=partial(self._mirrored, _STEP, own.step, name),
            select=partial(self._mirrored, _SELECT, own.select, name),
        )

    def clock(self, own: DeviceClock) -> DeviceClock:
        """Return a clock whose synchronisation waits for the devices of all ranks."""
        return _RanksClock(self, own) if self._lines else own

    @cached_property
    def gate(self) -> HostGate:
        """The gate of rank 0; with several ranks, a gate that looks and waits in all of them at once."""
        return _RanksGate(self) if self._lines else self.own.gate

    @contextlib.contextmanager
    def quiet(self) -> Iterator[None]:
        """Apply `quiet_python` in all ranks. If something is raised inside, the other ranks end with this one."""
        self.everywhere(CaseRank.quiet)
        try:
            yield
        finally:
            self.own.loud()
        self.everywhere(CaseRank.loud)

    def synchronize(self, clock: DeviceClock) -> None:
        self.tell(_SYNCHRONIZE)
        self.own.synchronize(clock)
        self.answers()

    def _mirrored(self, order: bytes, own: Callable[[], Any], name: str) -> Any:
        self.tell(order + name.encode())
        return self.own.step(name) if order == _STEP else own()


class _RanksClock(DeviceClock):
    def __init__(self, ranks: CaseRanks, own: DeviceClock) -> None:
        self._ranks, self._own = ranks, own
        self.now_ns = own.now_ns
        self.mark = own.mark  # type: ignore[method-assign]

    @property
    def is_asynchronous(self) -> bool:
        return self._own.is_asynchronous

    def synchronize(self) -> None:
        self._ranks.synchronize(self._own)


class _RanksGate(HostGate):
    """A gate that finds the host as slow as the slowest rank does. Each rank has its own cores."""

    def __init__(self, ranks: CaseRanks) -> None:
        own = ranks.own.gate
        super().__init__(own.undisturbed_s, own.now_ns, look_s=lambda: max(ranks.everywhere(CaseRank.look_at_host)))
        self._ranks = ranks

    def wait(self, limit_s: float = WAIT_S) -> bool:
        began = self.now_ns()
        found = self._ranks.everywhere(CaseRank.wait_for_host, limit_s, self.matters)
        self.waited_s += (self.now_ns() - began) / 1e9
        self.fast_cores = tuple(core for _, cores in found for core in cores)
        return all(is_fast for is_fast, _ in found)


def follow(own: Any, line: Line) -> None:
    """Do what rank 0 does, until rank 0 is gone. Only a `CaseRank` steps and synchronises."""
    while True:
        try:
            message = line.receive()
        except (EOFError, OSError):
            return
        order, rest = message[:1], message[1:]
        if order == _STEP:
            own.step(rest.decode())
        elif order == _SELECT:
            own.variants[rest.decode()].select()
        elif order == _SYNCHRONIZE:
            own.synchronize(own.clock)
            line.send(b"")
        else:
            function, arguments, named = pickle.loads(rest)  # noqa: S301  of our own process
            line.send(pickle.dumps(function(own, *arguments, **named)))
