"""Real worker processes: forked from a server that has torch and the models' libraries loaded, spawned elsewhere."""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import shutil
import signal
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from multiprocessing.connection import Connection, wait
from pathlib import Path
from typing import Any

import psutil

from torchzoo import worker
from torchzoo.environment import Facts
from torchzoo.lanes import Lane
from torchzoo.plan import Entry
from torchzoo.record import Settings
from torchzoo.scheduler import Exited, Message


class TorchUnusable(RuntimeError):
    """Torch can't be imported in a worker; the message says why."""


@dataclass
class _Process:
    process: Any
    connection: Connection
    scratch: str
    is_open: bool = True


class ForkedWorkers:
    """Starting a worker from the server takes a fraction of a second instead of seconds.

    The server never touches a device: `PYTORCH_NVML_BASED_CUDA_CHECK` keeps PyTorch from initialising CUDA when it
    only counts devices, and a forked child could not use CUDA otherwise. Use as a context: on leaving, nothing is left.
    """

    def __init__(self, libraries: Sequence[str], settings: Settings) -> None:
        self._settings = settings
        self._processes: dict[int, _Process] = {}
        can_fork = "forkserver" in multiprocessing.get_all_start_methods()
        self._context: Any = multiprocessing.get_context("forkserver" if can_fork else "spawn")
        os.environ["PYTORCH_NVML_BASED_CUDA_CHECK"] = "1"
        os.environ[worker.PRELOAD_VARIABLE] = ",".join(libraries)
        root = str(Path(__file__).resolve().parent.parent)
        os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, [root, os.environ.get("PYTHONPATH")]))
        if can_fork:
            self._context.set_forkserver_preload(["torchzoo.preload"])

    def facts(self) -> Facts:
        """What the machine has, asked of a worker.

        Raises:
            TorchUnusable: torch itself can't be imported.
        """
        receiver, sender = self._context.Pipe(duplex=False)
        process = self._context.Process(target=worker.tell_facts, args=(sender,))
        process.start()
        sender.close()
        try:
            facts: Facts | str = receiver.recv()
        except EOFError:
            facts = "the process that imports torch died; see above"
        process.join()
        if isinstance(facts, str):
            raise TorchUnusable(facts)
        return facts

    def start(self, ticket: int, entry: Entry, lane: Lane, log: Path) -> None:
        assert entry.spec is not None
        scratch = tempfile.mkdtemp(prefix="torchzoo-scratch-")
        request = worker.Request(
            case=entry.case, spec=entry.spec, settings=self._settings, lane=lane, log=str(log), scratch=scratch
        )
        ours, theirs = self._context.Pipe(duplex=True)
        process = self._context.Process(target=worker.work, args=(request, theirs))
        process.start()
        theirs.close()
        self._processes[ticket] = _Process(process, ours, scratch)

    def wait(self, timeout_s: float) -> list[tuple[int, Message]]:
        """See `torchzoo.scheduler.Workers`. What a worker has sent is read before its end is noticed."""
        waited: dict[Any, int] = {}
        for ticket, started in self._processes.items():
            waited[started.connection if started.is_open else started.process.sentinel] = ticket
        messages: list[tuple[int, Message]] = []
        for ready in wait(list(waited), timeout_s):
            started = self._processes[waited[ready]]
            if started.is_open:
                try:
                    messages.append((waited[ready], started.connection.recv()))
                except (EOFError, OSError):  # closed: the process is ending
                    started.is_open = False
            else:
                started.process.join()
                code = started.process.exitcode
                messages.append((waited[ready], Exited(-signal.SIGKILL if code is None else code)))
        return messages

    def open_window(self, ticket: int) -> None:
        with contextlib.suppress(OSError):  # gone in this moment: its end will be noticed
            self._processes[ticket].connection.send(worker.GO)

    def pause(self, ticket: int) -> None:
        self._signal(ticket, signal.SIGSTOP)

    def resume(self, ticket: int) -> None:
        self._signal(ticket, signal.SIGCONT)

    def kill(self, ticket: int) -> None:
        self._signal(ticket, signal.SIGKILL)
        started = self._processes.pop(ticket)
        started.process.kill()  # where it has not made its group yet
        started.process.join()
        started.connection.close()
        shutil.rmtree(started.scratch, ignore_errors=True)

    def _signal(self, ticket: int, number: signal.Signals) -> None:
        """To the worker's process group, which holds the compilers' own processes too."""
        pid = self._processes[ticket].process.pid
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(pid, number)

    def host_available_bytes(self) -> int:
        return psutil.virtual_memory().available

    def __enter__(self) -> ForkedWorkers:
        return self

    def __exit__(self, *_: object) -> None:
        for ticket in list(self._processes):
            self.kill(ticket)


@contextlib.contextmanager
def terminated_as_interrupted() -> Iterator[None]:
    """SIGTERM ends the run as Ctrl-C does: workers killed, what was measured kept."""

    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGTERM, interrupt)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)
