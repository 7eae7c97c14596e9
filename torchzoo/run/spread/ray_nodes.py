"""Nodes that Ray places: one actor for each node of its cluster, with all that the node has."""

from __future__ import annotations

import contextlib
import logging
import os
import signal
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from types import TracebackType
from typing import Any

import msgspec

import torchzoo
from torchzoo.errors import attempt, one_line
from torchzoo.machine.facts import VARIABLE_PREFIXES
from torchzoo.run.interrupts import Interrupts
from torchzoo.run.lanes import CPU
from torchzoo.run.spread import protocol, relay
from torchzoo.run.spread.nodes import EngineError, Event, Joined, Lost, Said

#: An actor that is not placed in this time finds its node in use.
PLACE_LIMIT_S = 120.0
LOOK_EVERY_S = 10.0  # for nodes that joined the cluster
POLL_S = 5.0  # so long an actor waits for its node to say something
END_S = 30.0


@dataclass
class _Placed:
    actor: Any
    host: str
    since_s: float
    saying: Any  # the reference of what the actor is asked
    has_joined: bool = False


class RayNodes:
    """See `torchzoo.run.spread.nodes.Nodes`.

    Args:
        address: of the cluster; None: the one that runs here, or that RAY_ADDRESS names.
        devices: what the cases need; empty: the accelerators, or the CPUs where there is none.
        most: use no more nodes than this.
        now_s: a monotonic clock.
    """

    def __init__(
        self,
        address: str | None,
        devices: Sequence[str],
        most: int | None = None,
        now_s: Callable[[], float] = time.monotonic,
    ) -> None:
        self._address = address
        self._devices = devices
        self._most = most
        self._now_s = now_s
        self._placed: dict[str, _Placed] = {}
        self._seen: set[str] = set()  # Ray's names of nodes that were looked at
        self._looked_s = -LOOK_EVERY_S

    @property
    def expected(self) -> int:
        return sum(not placed.has_joined for placed in self._placed.values())

    def cluster(self) -> list[dict[str, Any]]:
        """What Ray says of its living nodes."""
        return [node for node in self._ray.nodes() if node["Alive"]]

    def usable(self) -> list[dict[str, Any]]:
        """The nodes that have what the cases need."""
        alive = [node for node in self.cluster() if node["Resources"].get("CPU") or node["Resources"].get("GPU")]
        with_gpu = [node for node in alive if node["Resources"].get("GPU")]
        needs_gpu = any(device != CPU for device in self._devices) or (not self._devices and with_gpu)
        return with_gpu if needs_gpu else alive

    def __enter__(self) -> RayNodes:
        try:
            ray: Any = import_module("ray")
        except ImportError as error:
            raise EngineError("--executor ray needs Ray: pip install ray") from error
        ray.cloudpickle.register_pickle_by_value(relay)
        # Ray prints what befalls its nodes to standard output, which is the run's, and has no public way to stop that.
        ray._private.worker.print_to_stdstream = _say_nothing
        on_terminate = signal.getsignal(signal.SIGTERM)
        began = attempt(
            lambda: ray.init(
                address=self._address or "auto",
                namespace="torchzoo",
                log_to_driver=False,
                logging_level=logging.ERROR,
            )
        )
        signal.signal(signal.SIGTERM, on_terminate)  # Ray has put its own there
        if isinstance(began, Exception):
            where = f"at {self._address}" if self._address else "here (`ray start --head` starts one)"
            raise EngineError(f"no Ray cluster answers {where}: {one_line(began)}")
        self._ray: Any = ray
        self._place()
        self._looked_s = self._now_s()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        with Interrupts():  # a second Ctrl-C, too, must not leave a process
            ending = [placed.actor.end.remote() for placed in self._placed.values() if placed.has_joined]
            if ending:
                self._ray.wait(ending, num_returns=len(ending), timeout=END_S)
            for name in list(self._placed):
                self._kill(name)
            self._ray.shutdown()

    def tell(self, name: str, request: protocol.Request) -> None:
        if (placed := self._placed.get(name)) is not None:
            placed.actor.tell.remote(protocol.line_of(request))

    def dismiss(self, name: str) -> None:
        if name in self._placed:
            self._kill(name)

    def wait(self, timeout_s: float) -> list[tuple[str, Event]]:
        if self._now_s() - self._looked_s >= LOOK_EVERY_S:
            self._looked_s = self._now_s()
            self._place()
        saying = {placed.saying: name for name, placed in self._placed.items()}
        if not saying:
            time.sleep(timeout_s)
            return []
        ready, _ = self._ray.wait(list(saying), num_returns=1, timeout=timeout_s)
        if ready:
            ready, _ = self._ray.wait(list(saying), num_returns=len(saying), timeout=0)
        events = [(saying[one], event) for one in ready for event in self._events(saying[one], one)]
        for name, placed in list(self._placed.items()):
            if not placed.has_joined and self._now_s() - placed.since_s > PLACE_LIMIT_S:
                self._kill(name)
                events.append((name, Lost(why="its CPUs or GPUs are in use by something else")))
        return events

    def _events(self, name: str, said: Any) -> list[Event]:
        placed = self._placed[name]
        told = attempt(lambda: self._ray.get(said))
        if isinstance(told, Exception):
            self._kill(name)
            return [Lost(why=f"Ray can't reach its actor ({type(told).__name__})")]
        lines, ended = told
        events: list[Event] = []
        if not placed.has_joined:
            placed.has_joined = True
            events.append(Joined(host=placed.host))
        for line in lines:
            try:
                events.append(Said(answer=protocol.answer_of(line)))
            except (msgspec.MsgspecError, ValueError):
                ended = ended or "it said what is no answer"
        if ended is not None:
            self._kill(name)
            return [*events, Lost(why=ended)]
        placed.saying = placed.actor.said.remote(POLL_S)
        return events

    def _place(self) -> None:
        """Start an actor on each node that has not been looked at."""
        from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

        for node in self.usable():
            name, resources = str(node["NodeID"]), node["Resources"]
            if name in self._seen or (self._most is not None and len(self._placed) >= self._most):
                continue
            self._seen.add(name)
            options: dict[str, Any] = {
                "num_cpus": resources.get("CPU", 0),
                "num_gpus": resources.get("GPU", 0),
                "max_restarts": 0,
                "max_task_retries": 0,
                "max_concurrency": 4,
                "scheduling_strategy": NodeAffinitySchedulingStrategy(name, soft=False),
            }
            root = str(Path(torchzoo.__file__).resolve().parent.parent)
            actor = (
                self._ray.remote(relay.HostRelay)
                .options(**options)
                .remote(dict(os.environ), tuple(VARIABLE_PREFIXES), root)
            )
            host = self._name_of(str(node["NodeManagerHostname"]))
            self._placed[name] = _Placed(actor, host, self._now_s(), actor.said.remote(0.0))

    def _name_of(self, hostname: str) -> str:
        """The host's name; with a number, where another node has it."""
        taken = {placed.host for placed in self._placed.values()}
        number, name = 1, hostname
        while name in taken:
            number += 1
            name = f"{hostname}-{number}"
        return name

    def _kill(self, name: str) -> None:
        placed = self._placed.pop(name)
        with contextlib.suppress(ValueError):
            self._ray.kill(placed.actor)


def _say_nothing(*_: Any, **__: Any) -> None:
    pass
