"""The hosts of a Ray cluster: an actor on each starts `torchzoo.run.host_process`, and streams its answers."""

from __future__ import annotations

import contextlib
import json
import logging
import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from types import TracebackType
from typing import Any

import msgspec

import torchzoo
from torchzoo.errors import TorchzooError, attempt, one_line
from torchzoo.files import to_json
from torchzoo.machine.facts import VARIABLE_PREFIXES
from torchzoo.run.host_process import Answer, Entered, Finished, Given, HostReady, HostRefused, HostStart
from torchzoo.run.interrupts import Interrupts
from torchzoo.run.lanes import CPU

#: When the first host is ready, the others have so long to be ready, too. Later ones join the run that has begun.
PATIENCE_S = 60.0
#: An actor that is not placed in this time finds the CPUs or GPUs of its host in use.
PLACE_LIMIT_S = 120.0
LOOK_EVERY_S = 10.0  # for hosts that joined the Ray cluster
CONNECT_S = 10.0
END_S = 20.0  # the time that a host's process has to end its workers
#: Variables that say which devices a host has for this run.
DEVICES_OF_HOST = ("CUDA_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES")

_decoder: msgspec.json.Decoder[Any] = msgspec.json.Decoder(Answer)


class ClusterError(TorchzooError):
    """The cluster can't be used, or has no host for the run. The message is one line that says what to do."""


class Lost(msgspec.Struct, frozen=True, kw_only=True):
    """The host is gone, its process has ended, or it can't go on. Nothing more is heard of it, unless it comes back."""

    why: str


Event = HostReady | Entered | Finished | Lost


class HostActor:
    """Runs `torchzoo.run.host_process` on a host. Ray sends this class by value: it uses the standard library alone.

    Args:
        start: the first line for the process.
        variables: variables of the runner that the process gets in place of the host's.
        prefixes: how the names of these variables begin.
        root: the folder where the runner has torchzoo. If the host has this folder, it uses the same torchzoo.
    """

    def __init__(self, start: bytes, variables: Mapping[str, str], prefixes: tuple[str, ...], root: str) -> None:
        kept = {
            name: value
            for name, value in os.environ.items()
            if not name.startswith(prefixes) or name in DEVICES_OF_HOST
        }
        environment = {**kept, **variables}
        if Path(root).is_dir():
            environment["PYTHONPATH"] = os.pathsep.join(filter(None, [root, environment.get("PYTHONPATH")]))
        self._errors = tempfile.TemporaryFile()  # noqa: SIM115  as long as the process
        self._process = subprocess.Popen(
            [sys.executable, "-P", "-m", "torchzoo.run.host_process"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._errors,
            env=environment,
            start_new_session=True,
        )
        self.give(start)

    def answers(self) -> Iterator[bytes]:
        """Yield an empty line once the actor is placed, then the lines of the process, and last how that ended."""
        assert self._process.stdout is not None
        yield b""
        for line in self._process.stdout:  # noqa: UP028  Ray calls `send`, which a file does not have
            yield line
        try:
            code = self._process.wait(END_S)
        except subprocess.TimeoutExpired:
            ended = "its process can't be heard any more"
        else:
            self._errors.seek(0)
            said = self._errors.read().decode(errors="replace").split("\n")
            last = next((f": {line.strip()[:200]}" for line in reversed(said) if line.strip()), "")
            ended = (
                f"its process ended by signal {-code}" if code < 0 else f"its process ended with status {code}{last}"
            )
        yield json.dumps({"type": "HostRefused", "message": ended}).encode()

    def give(self, line: bytes) -> None:
        """Pass a line on to the process. If it is gone, `answers` says so."""
        assert self._process.stdin is not None
        with contextlib.suppress(OSError):
            self._process.stdin.write(line + b"\n")
            self._process.stdin.flush()

    def end(self) -> None:
        """End the process and its workers."""
        assert self._process.stdin is not None
        with contextlib.suppress(OSError):
            self._process.stdin.close()
        try:
            self._process.wait(END_S)
        except subprocess.TimeoutExpired:
            self._process.kill()  # its workers end then, too


@dataclass
class _Placed:
    actor: Any
    answers: Any  # Ray's generator of what the actor yields
    since_s: float
    is_placed: bool = False
    is_ready: bool = False


class RayHosts:
    """The hosts, by name. Use as a context: on leaving, no process of the run is left on any host.

    Args:
        address: of the cluster; None: the one that runs here, or that RAY_ADDRESS names.
        devices: what the cases need; empty: the accelerators, or the CPUs where there is none.
        most: use no more hosts than these, and expect so many before the run begins; None: use all.
    """

    def __init__(self, address: str | None, devices: Sequence[str], most: int | None = None) -> None:
        self._address = address
        self._devices = devices
        self._most = most
        self._start: HostStart | None = None
        self._began_s = time.monotonic()
        self._looked_s = self._began_s
        self._placed: dict[str, _Placed] = {}
        self._seen: set[str] = set()  # Ray's names of nodes that were looked at

    def __enter__(self) -> RayHosts:
        try:
            ray: Any = import_module("ray")
        except ImportError as error:
            raise ClusterError("--executor ray needs Ray: pip install ray") from error
        ray.cloudpickle.register_pickle_by_value(sys.modules[__name__])
        # Ray prints what befalls its nodes to standard output, which is the run's, and has no public way to stop that.
        ray._private.worker.print_to_stdstream = _say_nothing
        if self._address is not None:  # Ray itself tries for a quarter of an hour
            server, _, port = self._address.rpartition(":")
            reached = attempt(lambda: socket.create_connection((server, int(port)), CONNECT_S).close())
            if isinstance(reached, Exception):
                raise ClusterError(f"no Ray cluster answers at {self._address}: {one_line(reached)}")
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
            raise ClusterError(f"no Ray cluster answers {where}: {one_line(began)}")
        self._ray: Any = ray
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        with Interrupts():  # a second Ctrl-C, too, must not leave a process
            ending = [placed.actor.end.remote() for placed in self._placed.values() if placed.is_placed]
            if ending:
                self._ray.wait(ending, num_returns=len(ending), timeout=END_S + 10)
            for name in list(self._placed):
                self.dismiss(name)
            self._ray.shutdown()

    def begin(self, start: HostStart) -> None:
        """Start the process of each host, of those that join later, too.

        Raises:
            ClusterError: no host has what the cases need.
        """
        self._start = start
        self._began_s = time.monotonic()
        self._place()
        if not self._seen:
            raise ClusterError(
                f"the Ray cluster has no host for cases on {' and '.join(self._devices) or 'any device'}"
            )

    def give(self, name: str, given: Given) -> None:
        """Give a host cases to run. If the host is gone, that is an event, not an error."""
        self._placed[name].actor.give.remote(to_json(given))

    def dismiss(self, name: str) -> None:
        """End the process of a host."""
        placed = self._placed.pop(name)
        with contextlib.suppress(ValueError):
            self._ray.kill(placed.actor)

    def expected(self) -> bool:
        """Whether a host may still become ready."""
        may_join = self._most is not None and len(self._seen) < self._most
        is_starting = may_join and time.monotonic() < self._began_s + PATIENCE_S
        return is_starting or not all(placed.is_ready for placed in self._placed.values())

    def wait(self, timeout_s: float) -> list[tuple[str, Event]]:
        """What happened within `timeout_s`, each event with the host's name."""
        if time.monotonic() >= self._looked_s + LOOK_EVERY_S:
            self._place()
        names = {placed.answers: name for name, placed in self._placed.items()}
        if not names:
            time.sleep(timeout_s)
            return []
        said, _ = self._ray.wait(list(names), num_returns=1, timeout=timeout_s)
        if said:
            said, _ = self._ray.wait(list(names), num_returns=len(names), timeout=0)
        events = [(names[one], event) for one in said if (event := self._event(names[one])) is not None]
        for name, placed in list(self._placed.items()):
            if not placed.is_placed and time.monotonic() > placed.since_s + PLACE_LIMIT_S:
                self.dismiss(name)
                events.append((name, Lost(why="its CPUs or GPUs are in use by something else")))
        return events

    def _event(self, name: str) -> Event | None:
        """What the next line of a host says; None if it says that the actor is placed."""
        placed = self._placed[name]
        line = attempt(lambda: self._ray.get(next(placed.answers)))
        if line == b"":
            placed.is_placed = True
            return None
        if isinstance(line, Exception):
            self.dismiss(name)
            return Lost(why=f"Ray can't reach its actor ({type(line).__name__})")
        try:
            answer: Answer = _decoder.decode(line)
        except (msgspec.MsgspecError, ValueError):
            answer = HostRefused(message="it said what is no answer; it may have another torchzoo")
        if isinstance(answer, HostRefused):
            self.dismiss(name)
            return Lost(why=answer.message)
        placed.is_ready = placed.is_ready or isinstance(answer, HostReady)
        return answer

    def _place(self) -> None:
        """Start an actor on each node that has not been looked at."""
        from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

        assert self._start is not None
        self._looked_s = time.monotonic()
        variables = {
            name: value
            for name, value in os.environ.items()
            if name.startswith(VARIABLE_PREFIXES) and name not in DEVICES_OF_HOST
        }
        root = str(Path(torchzoo.__file__).resolve().parent.parent)
        for node in self._usable():
            node_id, resources = str(node["NodeID"]), node["Resources"]
            if node_id in self._seen or (self._most is not None and len(self._placed) >= self._most):
                continue
            self._seen.add(node_id)
            name = self._name_of(str(node["NodeManagerHostname"]))
            options: dict[str, Any] = {
                "num_cpus": resources.get("CPU", 0),
                "num_gpus": resources.get("GPU", 0),
                "max_restarts": 0,
                "max_task_retries": 0,
                "max_concurrency": 2,  # `answers` runs all the time, and the other methods beside it
                "scheduling_strategy": NodeAffinitySchedulingStrategy(node_id, soft=False),
            }
            start = to_json(msgspec.structs.replace(self._start, host=name))
            actor = self._ray.remote(HostActor).options(**options).remote(start, variables, VARIABLE_PREFIXES, root)
            answers = actor.answers.options(num_returns="streaming").remote()
            self._placed[name] = _Placed(actor, answers, time.monotonic())

    def _usable(self) -> list[dict[str, Any]]:
        """The living nodes of Ray that have what the cases need."""
        alive = [node for node in self._ray.nodes() if node["Alive"]]
        with_gpu = [node for node in alive if node["Resources"].get("GPU")]
        needs_gpu = any(device != CPU for device in self._devices) or (not self._devices and with_gpu)
        return with_gpu if needs_gpu else [node for node in alive if node["Resources"].get("CPU")]

    def _name_of(self, hostname: str) -> str:
        """The host's name; with a number, where another host has it."""
        number, name = 1, hostname
        while name in self._placed:
            number += 1
            name = f"{hostname}-{number}"
        return name


def _say_nothing(*_: Any, **__: Any) -> None:
    pass
