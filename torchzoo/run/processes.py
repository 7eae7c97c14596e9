"""The real worker processes. They are forked from a server that has torch and the models' libraries loaded."""

from __future__ import annotations

import contextlib
import shutil
import signal
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from multiprocessing.connection import Connection, wait
from pathlib import Path
from typing import Any

import psutil

from torchzoo.machine.limits import available_bytes, pin
from torchzoo.run import reaper, worker
from torchzoo.run.failures import STACKS_SIGNAL
from torchzoo.run.fork_server import REAPER, SERVER_GONE, STARTS, ForkServer, TorchUnusable, without_main
from torchzoo.run.interrupts import Interrupts
from torchzoo.run.lanes import Lane
from torchzoo.run.messages import Reader
from torchzoo.run.plan import PlannedCase
from torchzoo.run.ranks import RANK_NAME
from torchzoo.run.workers import Exited, Message
from torchzoo.settings import Settings

#: A process that was told to write its stack has so long until the next one is told.
STACK_S = 0.1


@dataclass
class _Process:
    process: Any
    connection: Connection
    reader: Reader
    scratch: str
    log: Path
    has_ended: bool = False  # `wait` has said so
    server_ended: bool = False  # the process runs on, but multiprocessing can't tell when it ends
    was_stopped: bool = False  # when `pause` was called, it was stopped already


class ForkedWorkers:
    """The processes of a run, each forked from `server`. Use as a context: on leaving, nothing is left.

    Each repeat of the cases has a server of its own, for processes of one server are not independent of each other.
    The scheduler starts a repeat when those of the one before have ended.

    Within it, SIGINT and SIGTERM are raised as `KeyboardInterrupt` by `wait` only: in the middle of starting or killing
    a worker they would leave one that nobody knows of, and that multiprocessing waits for at exit, for ever.

    Args:
        server: where the processes come from.
        settings: of the run.
        own_cores: the cores that this process keeps to within the context; None: it may use all.
        undisturbed_loop_s: what `ForkServer.host_speed` found.
        woken_by: `wait` returns when there is something to read from one of these file descriptors, too.
    """

    def __init__(
        self,
        server: ForkServer,
        settings: Settings,
        *,
        own_cores: tuple[int, ...] | None = None,
        undisturbed_loop_s: float | None = None,
        woken_by: Sequence[int] = (),
    ) -> None:
        self._woken_by = woken_by
        self._server = server
        self._repeat: int | None = None  # of the cases that the server's processes have measured
        self._settings = settings
        self._own_cores = own_cores
        self._undisturbed_loop_s = undisturbed_loop_s
        self._processes: dict[int, _Process] = {}
        self._interrupts = Interrupts()

    def start(self, ticket: int, planned: PlannedCase, lane: Lane, log: Path) -> None:
        assert planned.spec is not None
        if planned.case.repeat != self._repeat:
            assert not self._processes, "a repeat begins when the one before has ended"
            if self._repeat is not None:
                self._server.renew()
            self._repeat = planned.case.repeat
        scratch = tempfile.mkdtemp(prefix="torchzoo-scratch-")
        request = worker.Request(
            case=planned.case,
            spec=planned.spec,
            settings=self._settings,
            lane=lane,
            cores=self._server.cores,
            undisturbed_loop_s=self._undisturbed_loop_s,
            log=str(log),
            scratch=scratch,
        )
        ours, theirs = self._server.context.Pipe(duplex=True)
        try:
            process = self._started(request, theirs)
        except TorchUnusable:
            shutil.rmtree(scratch, ignore_errors=True)
            raise
        theirs.close()
        self._processes[ticket] = _Process(process, ours, Reader(ours), scratch, log)
        REAPER.started(process.pid, scratch)
        self._server.ensure_running()  # it may be another one than before: someone killed that one

    def _started(self, request: worker.Request, connection: Connection) -> Any:
        """A new worker, of a new server if someone killed the old one before or while it started the worker.

        Raises:
            TorchUnusable: that happened again and again.
        """
        for _ in range(STARTS):
            self._server.ensure_running()
            process = self._server.context.Process(target=worker.work, args=(request, connection))
            try:
                with without_main():
                    process.start()
            except SERVER_GONE:
                time.sleep(0.2)  # until the server can be seen to have ended
            else:
                return process
        raise TorchUnusable(f"the process that starts workers was killed {STARTS} times in a row")

    def wait(self, timeout_s: float) -> list[tuple[int, Message]]:
        """See `torchzoo.run.scheduler.Workers`. All messages of a worker are read before its end is reported.

        Raises:
            KeyboardInterrupt: SIGINT or SIGTERM came, during this call or since the last one.
        """
        waited: dict[Any, int] = {}
        for ticket, started in self._processes.items():
            if started.reader.is_open:
                waited[started.connection] = ticket
            if not (started.has_ended or (started.server_ended and started.reader.is_open)):
                waited[started.process.sentinel] = ticket
        ready = wait([*waited, self._interrupts.noted, *self._woken_by], timeout_s)
        if self._interrupts.noted in ready:
            raise KeyboardInterrupt
        messages: list[tuple[int, Message]] = []
        for ticket in dict.fromkeys(waited[one] for one in ready if one in waited):
            started = self._processes[ticket]
            messages += [(ticket, message) for message in started.reader.read()]
            if started.process.sentinel in ready:
                messages += [(ticket, message) for message in self._end_of(started)]
        return messages

    def _end_of(self, started: _Process) -> list[Message]:
        """What is left to read of a worker whose sentinel is ready, and its exit code.

        The sentinel is also ready where the fork server was killed. A worker of it may go on; it has ended when its
        connection is closed.
        """
        if started.reader.is_open and _is_running(started.process.pid):
            started.server_ended = True
            return []
        started.has_ended = True
        left = started.reader.read()
        started.process.join()
        code = started.process.exitcode
        return [*left, Exited(-signal.SIGKILL if code is None else code)]

    def go_on(self, ticket: int) -> None:
        with contextlib.suppress(OSError):  # the worker has just ended: `wait` will report that
            self._processes[ticket].connection.send(worker.GO)

    def pause(self, ticket: int) -> None:
        started = self._processes[ticket]
        started.was_stopped = _status(started.process.pid) == psutil.STATUS_STOPPED
        self._signal(ticket, signal.SIGSTOP)

    def resume(self, ticket: int) -> None:
        started = self._processes[ticket]
        if started.was_stopped:  # it had stopped itself: then its time limit ends it, whatever others do
            started.was_stopped = False
        else:
            self._signal(ticket, signal.SIGCONT)

    def tell_stacks(self, ticket: int) -> None:
        started = self._processes[ticket]
        with contextlib.suppress(psutil.Error, OSError):  # it has just ended, or there is no log
            own = psutil.Process(started.process.pid)
            ranks = [child for child in own.children() if child.name().startswith(RANK_NAME)]
            for number, one in enumerate([own, *ranks]):
                if ranks:
                    with started.log.open("a") as log:
                        log.write(f"\n{one.name() if number else f'{RANK_NAME}0'}:\n")
                one.send_signal(STACKS_SIGNAL)
                time.sleep(STACK_S)

    def kill(self, ticket: int) -> None:
        if ticket not in self._processes:  # `start` failed: there was no space, or no process
            return
        started = self._processes.pop(ticket)
        reaper.kill_all(started.process.pid)
        started.process.kill()  # in case it has not made its process group yet
        started.process.join()
        started.connection.close()
        self._kill_strays()
        shutil.rmtree(started.scratch, ignore_errors=True)
        REAPER.ended(started.process.pid)

    def _kill_strays(self) -> None:
        """Kill what workers left behind when they ended: the children of the fork server that are no workers."""
        if REAPER.server is not None:
            known = {started.process.pid for started in self._processes.values()}
            for pid in set(reaper.children().get(REAPER.server, ())) - known:
                reaper.kill_all(pid)

    def _signal(self, ticket: int, number: signal.Signals) -> None:
        """Signal the worker and its process group, which also holds the compilers' processes."""
        reaper.kill_tree(self._processes[ticket].process.pid, number)

    def host_available_bytes(self) -> int:
        return available_bytes()

    def __enter__(self) -> ForkedWorkers:
        self._interrupts.__enter__()
        if self._own_cores is not None:
            pin(self._own_cores)
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        for ticket in list(self._processes):
            self.kill(ticket)
        if self._own_cores is not None:
            pin(self._server.cores)
        self._interrupts.__exit__()
        if self._interrupts.came and kind is None:
            raise KeyboardInterrupt


def _is_running(pid: int) -> bool:
    return _status(pid) not in (psutil.STATUS_ZOMBIE, None)


def _status(pid: int) -> str | None:
    """As psutil names it; None if the process is gone."""
    try:
        return str(psutil.Process(pid).status())
    except psutil.NoSuchProcess:
        return None
