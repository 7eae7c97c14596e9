"""The runner's side of the server that starts processes (`torchzoo.run.server`), and the workers of the scheduler."""

from __future__ import annotations

import contextlib
import math
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from multiprocessing.connection import wait
from pathlib import Path
from typing import Any, TypeVar

import msgspec

import torchzoo
from torchzoo.case import Backend
from torchzoo.devices.foreign import RUNNER_VARIABLE
from torchzoo.errors import TorchzooError
from torchzoo.files import safe_name, to_json
from torchzoo.machine.facts import MachineInfo
from torchzoo.machine.limits import available_bytes, pin, this_thread_on, usable_cores
from torchzoo.measure.fresh_turns import Ask
from torchzoo.record import MeasuredPeaks
from torchzoo.run import protocol
from torchzoo.run.interrupts import Interrupts
from torchzoo.run.lanes import Lane
from torchzoo.run.lines import Garbled, LineReader, decoded, write_line
from torchzoo.run.plan import PlannedCase
from torchzoo.run.process_tree import kill_all, kill_tree
from torchzoo.run.worker import Request
from torchzoo.run.workers import Exited, Message
from torchzoo.settings import CacheMode, Settings, Stage
from torchzoo.zoo.spec import ModelSpec

#: A library that is not imported in this time is left to the workers of its models.
IMPORT_LIMIT_S = 120.0
#: A server that has not answered a request after this time is stopped or hangs, and is ended.
ANSWER_LIMIT_S = 60.0
#: How often a process is started, if it or its server is killed each time.
STARTS = 3
#: What a worker does, and the process of a turn.
WORK, WORK_FRESH = "torchzoo.run.worker:work", "torchzoo.run.fresh:work"

_Answer = TypeVar("_Answer", bound=protocol.Answer)
_Kind = TypeVar("_Kind")


class ServerError(TorchzooError):
    """An environment can't do what it was asked. The message is one line that begins with its name, if it has one.

    Args:
        environment: the name of the environment; empty for that of the runner.
        what: what is wrong.
    """

    def __init__(self, environment: str, what: str) -> None:
        super().__init__(f"{environment}: {what}" if environment else what)
        self.environment = environment


class TorchUnusable(ServerError):
    """An environment says why it can't do what it was asked: its torch, for example, can't be imported."""


class _ServerEnded(TorchzooError):
    """The server has ended, which `Pool` has noted."""


class Pool:
    """The processes of an environment, forked from a server that has loaded torch and libraries, or fresh ones.

    Each library is proved harmless while the server loads it. If it ends the server, takes too long, replaces a
    function of PyTorch, uses a device, or changes a thread, a file or a process that others would inherit, the server
    is started anew without it, and the workers of its models import it themselves.

    The server starts when it is first needed, and again when it has ended. It loads nothing as long as all processes
    are fresh. It and its processes may use `cores`: all that this process could use when the `Pool` was made. The
    runner keeps to one of them meanwhile, and torch in the server sets its number of threads by them.

    Use as a context: on leaving, the server and its processes are gone.

    Args:
        preload: what the server imports beside torch: `module` or `module:attribute`.
        import_limit_s: how long one of them may take.
        name: of the software environment, for messages.
        python: the interpreter of the environment.
        variables: added to the environment variables of this process.
    """

    def __init__(
        self,
        preload: Sequence[str],
        import_limit_s: float = IMPORT_LIMIT_S,
        *,
        name: str = "",
        python: str = sys.executable,
        variables: Mapping[str, str] | None = None,
    ) -> None:
        self.preload = tuple(preload)
        self.import_limit_s = min(import_limit_s, IMPORT_LIMIT_S)
        self.name = name
        self.cores = usable_cores()
        self.refused: dict[str, str] = {}  # what the server does not load, and why
        self.interrupts: Interrupts | None = None  # where signals are noted, not raised: an import can be interrupted
        self._python = python
        self._variables = variables or {}
        self._process: subprocess.Popen[bytes] | None = None
        self._is_loading = self._is_loaded = False
        self._answers: deque[protocol.Answer] = deque()  # to requests
        self._said: list[protocol.Said | protocol.Unreadable | protocol.Ended] = []  # not yet taken
        self._garbled: set[int] = set()  # tickets of processes that have sent what is no message
        self._pids: dict[int, int] = {}  # of the processes that run, by ticket
        self._scratch: dict[int, str] = {}  # by ticket, until the server has removed it
        self._questions = 0

    def __enter__(self) -> Pool:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # --- questions ---

    def machine_info(self) -> MachineInfo:
        """Ask what the machine has.

        Raises:
            ServerError: torch itself can't be imported, or the Python can't be started.
        """
        answer = self._ask(MachineInfo, "torchzoo.run.questions:machine_info")
        # libgomp may have bound the server to one core
        seen = msgspec.structs.replace(answer.environment, cpu_usable=len(self.cores))
        return msgspec.structs.replace(answer, environment=seen)

    def missing(self, models: Sequence[ModelSpec], backends: Sequence[Backend]) -> dict[str, str]:
        """Ask what the environment does not have installed (`resources.missing`)."""
        return self._ask(dict[str, str], "torchzoo.run.questions:missing", models, backends)

    def host_speed(self, lanes: Sequence[Lane]) -> float:
        """Ask how long the host's loop of plain Python takes on the lanes' cores while nothing else runs, in seconds.

        Nothing of the run may be running.
        """
        all_cores = {lane.cores or self.cores for lane in lanes}
        return min(self._ask(float, "torchzoo.run.questions:host_speed", cores) for cores in all_cores)

    def measured_peaks(self, device: str) -> tuple[str, int | None, MeasuredPeaks]:
        """Measure what matrix products and copies reach on `device`.

        Returns:
            The device's name, its number of threads (of a CPU), and its measured peaks.

        Raises:
            ServerError: the device can't be used, or the process died.
        """
        return self._ask(tuple[str, int | None, MeasuredPeaks], "torchzoo.run.questions:measured_peaks", device)

    def bus_peaks(self, devices: Sequence[str]) -> dict[str, float]:
        """Measure the bus bandwidth between the devices in GB/s, by collective.

        Raises:
            ServerError: a device can't be used, or a process died.
        """
        return self.told(dict[str, float], "torchzoo.run.bus:tell_bus_peaks", to_json(devices))

    def _ask(self, kind: type[_Kind], function: str, *arguments: Any) -> _Kind:
        question = protocol.Question(function=function, arguments=arguments)
        return self.told(kind, "torchzoo.run.questions:answer", to_json(question))

    def told(self, kind: type[_Kind], function: str, argument: bytes) -> _Kind:
        """Start a process that calls `function`, and return what it tells.

        Args:
            kind: the type of the result.
            function: `module:function`, called with `argument` and a connection, which sends a `protocol.Told` or a
                `protocol.CanNotTell`.
            argument: JSON.

        Raises:
            ServerError: the process says why it can't tell, or died again and again.
        """
        for _ in range(STARTS):
            self._questions -= 1
            ticket = self._questions  # below 0, those of workers are above
            with contextlib.suppress(_ServerEnded):
                self.start(ticket, function, argument)
                told = self._told_by(ticket)
                self.kill(ticket)
                if isinstance(told, protocol.CanNotTell):
                    raise TorchUnusable(self.name, told.message)
                if told is not None:
                    return msgspec.convert(told.result, kind)
        raise TorchUnusable(
            self.name, f"the process for {function} died {STARTS} times; what it printed is on standard error"
        )

    def _told_by(self, ticket: int) -> protocol.Told | protocol.CanNotTell | None:
        """Return the answer of a process; None if it ended without."""
        while not (about := [one for one in self._said if one.ticket == ticket]):
            self._receive(None)
        told = decoded(about[0].line, protocol.of_question) if isinstance(about[0], protocol.Said) else None
        return None if isinstance(told, Garbled) else told

    # --- processes ---

    def start(self, ticket: int, function: str, argument: bytes, scratch: str = "", fresh_log: str = "") -> None:
        """Start a process, of a new server if the old one is killed before or meanwhile.

        Args:
            ticket: the number of the process.
            function: `module:function`, called with `argument` and a connection.
            argument: JSON.
            scratch: a folder that is removed when the process has ended.
            fresh_log: the file for what a fresh process prints; empty: the process is a fork.

        Raises:
            ServerError: that happened again and again, or there is no process to be had.
        """
        request = protocol.Start(
            ticket=ticket, function=function, argument=msgspec.Raw(argument), scratch=scratch, fresh_log=fresh_log
        )
        for _ in range(STARTS):
            with contextlib.suppress(_ServerEnded):
                if fresh_log and not self._is_loading:
                    self._run_server()
                else:
                    self._load()
                self._pids[ticket] = self._request(request, protocol.Started).pid
                self._scratch[ticket] = scratch
                self._garbled.discard(ticket)
                return
        raise TorchUnusable(self.name, f"the process that starts workers was killed {STARTS} times in a row")

    def tell(self, request: protocol.Proceed | protocol.Resume | protocol.WriteStacks) -> None:
        """Send a request that has no answer."""
        if request.ticket in self._pids:
            with contextlib.suppress(_ServerEnded):  # then the process has ended, too
                self._send(request)

    def pause(self, ticket: int) -> None:
        """Stop a process with its process group."""
        if ticket in self._pids:
            with contextlib.suppress(_ServerEnded):
                self._request(protocol.Pause(ticket=ticket), protocol.Done)

    def kill(self, ticket: int) -> None:
        """Kill a process with all that it has started, and forget it."""
        if ticket in self._scratch:
            with contextlib.suppress(_ServerEnded):
                self._request(protocol.Kill(ticket=ticket), protocol.Done)
            self._pids.pop(ticket, None)
            self._scratch.pop(ticket, None)
        self._said = [one for one in self._said if one.ticket != ticket]

    @property
    def file(self) -> int | None:
        """The file descriptor that the workers' messages come from; None while there are no workers."""
        return self._reader.file if self._process is not None and not self._is_loading else None

    @property
    def has_unread(self) -> bool:
        return bool(self._said)

    def said(self) -> list[tuple[int, Message]]:
        """Return what workers have said since the last call, each with its ticket. `Exited` is the last message."""
        with contextlib.suppress(_ServerEnded):
            self._receive(0)
        came, self._said = self._said, []
        found: list[tuple[int, Message]] = []
        for one in came:
            if one.ticket not in self._garbled:
                message = _message(one)
                found.append((one.ticket, message))
                if isinstance(message, Garbled):
                    self._garbled.add(one.ticket)
        return found

    def renew(self) -> None:
        """End the server with its processes. The next one draws its places in memory anew.

        A fork keeps them, so processes of one server are not independent (docs/how_it_measures.md has figures).

        Raises:
            KeyboardInterrupt: a signal came meanwhile, and is noted nowhere else.
        """
        with contextlib.ExitStack() as stack:  # in the middle, a signal would leave a server that is stopped
            interrupts = self.interrupts or stack.enter_context(Interrupts())
            self._end()
        if self.interrupts is None and interrupts.came:
            raise KeyboardInterrupt

    def close(self) -> None:
        """End the server with its processes, of which nothing is heard any more."""
        self.renew()
        self._said.clear()

    # --- the server ---

    def begin(self) -> None:
        """Start the server if there is none, and let it load. Nothing is waited for."""
        self._run_server()
        if not (self._is_loading or self._is_loaded):
            self._is_loading = True
            is_ours = self._python == sys.executable and not self._variables
            with contextlib.suppress(_ServerEnded):
                self._send(protocol.Load(libraries=self.preload, paths=tuple(sys.path) if is_ours else ()))

    def _run_server(self) -> None:
        if self._process is not None:
            return
        root = str(Path(torchzoo.__file__).resolve().parent.parent)
        variables = {**os.environ, **self._variables}
        folders = list(filter(None, variables.get("PYTHONPATH", "").split(os.pathsep)))
        variables["PYTHONPATH"] = os.pathsep.join(folders if root in folders else [root, *folders])
        variables[RUNNER_VARIABLE] = str(os.getpid())
        with this_thread_on(self.cores):
            try:
                self._process = subprocess.Popen(  # noqa: S603  the interpreter that the user named or torchzoo made
                    [self._python, "-P", "-c", "from torchzoo.run.server import main; main()"],
                    stdin=subprocess.PIPE,
                    stdout=subprocess.PIPE,
                    env=variables,
                    start_new_session=True,  # Ctrl-C is for the runner, which ends the server
                )
            except OSError as error:
                raise ServerError(self.name, f"can't start {self._python}: {error.strerror}") from error
        assert self._process.stdout is not None
        self._reader: LineReader[protocol.Answer] = LineReader(self._process.stdout.fileno(), protocol.answers)

    def _load(self) -> None:
        """Return when the server has loaded what it can load.

        Raises:
            KeyboardInterrupt: a signal was noted meanwhile.
            ServerError: torch can't be imported, or someone kills the server again and again.
        """
        ends = 0
        while True:
            self.begin()
            if self._is_loaded:
                return
            culprit, why = self._follow_loading()
            if not why:
                self._is_loading, self._is_loaded = False, True
                return
            self.renew()
            if culprit in ("", "torch"):
                ends += 1
                if ends == STARTS:
                    raise TorchUnusable(
                        self.name, f"importing torch ends the process: see {self._python} -c 'import torch'"
                    )
            else:
                self.refused[culprit] = why
                self.preload = tuple(library for library in self.preload if not _is_in(library, culprit))

    def _follow_loading(self) -> tuple[str, str]:
        """Return the library that the server must not load, and the reason; empty words if it is ready.

        The library is empty, or torch, if the server has ended and no other is to blame.
        """
        library = ""
        while True:
            limit_s = None if library in ("", "torch") else self.import_limit_s
            try:
                answer = self._next(limit_s)
            except _ServerEnded:
                return library, "its import ends the process"
            match answer:
                case None:
                    return library, "its import takes too long"
                case protocol.Loading():
                    library = answer.library
                case protocol.Loaded(changed=()):
                    library = ""
                case protocol.Loaded():
                    return answer.library, f"its import changes {', '.join(answer.changed)}"
                case protocol.Ready():
                    return "", ""

    def _request(self, request: protocol.Request, kind: type[_Answer]) -> _Answer:
        self._send(request)
        answer = self._next(ANSWER_LIMIT_S)
        if answer is None:
            self._end()
            raise _ServerEnded
        assert isinstance(answer, kind), answer
        return answer

    def _send(self, request: protocol.Request) -> None:
        if self._process is None:
            raise _ServerEnded
        assert self._process.stdin is not None
        try:
            write_line(self._process.stdin.fileno(), to_json(request) + b"\n")
        except OSError as error:
            with contextlib.suppress(_ServerEnded):
                self._receive(0)  # what it has sent before
            self._end()
            raise _ServerEnded from error

    def _next(self, limit_s: float | None = None) -> Any:
        """Return the next answer to a request; None if it does not come in time.

        Raises:
            TorchUnusable: the server refuses.
        """
        deadline_s = math.inf if limit_s is None else time.monotonic() + limit_s
        while not self._answers:
            left_s = deadline_s - time.monotonic()
            if left_s <= 0:
                return None
            self._receive(None if limit_s is None else left_s)
        answer = self._answers.popleft()
        if isinstance(answer, protocol.Refused):
            raise TorchUnusable(self.name, answer.message)
        return answer

    def _receive(self, timeout_s: float | None) -> None:
        """Read what the server has sent, waited for at most so long.

        Raises:
            KeyboardInterrupt: a signal was noted while the server loads libraries.
            ServerError: what it has sent can't be understood.
        """
        if self._process is None:
            raise _ServerEnded
        noted = [self.interrupts.noted] if self.interrupts is not None and self._is_loading else []
        if set(wait([self._reader.file, *noted], timeout_s)) & set(noted):
            raise KeyboardInterrupt
        for answer in self._reader.read():
            match answer:
                case Garbled():
                    self._end()
                    raise ServerError(self.name, f"its server can't be understood: {answer.what}")
                case protocol.Said() | protocol.Unreadable():
                    self._said.append(answer)
                case protocol.Ended():
                    self._pids.pop(answer.ticket, None)
                    self._said.append(answer)
                case _:
                    self._answers.append(answer)
        if not self._reader.is_open and not self._answers:
            self._end()
            raise _ServerEnded

    def _end(self) -> None:
        """End the server and all that has come of it. What was running has ended then, killed."""
        if self._process is None:
            return
        kill_all(self._process.pid)
        for pid in self._pids.values():  # where /proc does not tell what descends from the server, or it has ended
            kill_tree(pid, signal.SIGKILL)
        self._process.wait()
        for pipe in (self._process.stdin, self._process.stdout):
            assert pipe is not None
            with contextlib.suppress(OSError):
                pipe.close()
        self._process, self._is_loading, self._is_loaded = None, False, False
        self._said += [protocol.Ended(ticket=ticket, code=-signal.SIGKILL, with_server=True) for ticket in self._pids]
        for scratch in filter(None, self._scratch.values()):
            shutil.rmtree(scratch, ignore_errors=True)
        self._pids.clear()
        self._scratch.clear()
        self._answers.clear()


def _is_in(library: str, other: str) -> bool:
    """Whether `a.b:c` is `other`, or is in it: in `a` or `a.b`."""
    return library == other or library.startswith((f"{other}.", f"{other}:"))


def _message(answer: protocol.Said | protocol.Unreadable | protocol.Ended) -> Message:
    match answer:
        case protocol.Ended():
            return Exited(answer.code, answer.with_server)
        case protocol.Unreadable():
            return Garbled(answer.what)
    found: Message = decoded(answer.line, protocol.of_worker)
    return found


@dataclass(frozen=True, kw_only=True)
class PoolRun:
    """A run in one environment."""

    pool: Pool
    settings: Settings
    undisturbed_loop_s: float | None = None  # what `Pool.host_speed` found; None: not known

    def request(self, planned: PlannedCase, lane: Lane, log: Path, scratch: str, shared: Path) -> Request | Ask:
        """Return what a process of a case needs to know. The folders of a turn are made.

        `shared` is the folder of the files that the processes of the case share.
        """
        assert planned.spec is not None
        if (turn := planned.turn) is None:
            caches = self.settings.cache_dir or (str(shared) if self.settings.cache is CacheMode.WARM else scratch)
            return Request(
                case=planned.case,
                spec=planned.spec,
                settings=self.settings,
                lane=lane,
                cores=self.pool.cores,
                undisturbed_loop_s=self.undisturbed_loop_s,
                log=str(log),
                scratch=scratch,
                caches=caches,
                before=planned.before,
            )
        folder = shared / "caches" / safe_name(turn.cache) if turn.cache else Path(scratch) / "caches"
        for path in (shared, folder):
            path.mkdir(parents=True, exist_ok=True)
        return Ask(
            function=turn.function,
            case=planned.case,
            spec=planned.spec,
            settings=self.settings,
            options=turn.options,
            folder=str(shared),
            caches=str(folder),
            scratch=scratch,
            log=str(log),
            device=lane.device,
            cores=lane.cores or (),
        )


class PoolWorkers:
    """The workers of a run, each started by the server of its environment, as the scheduler uses them.

    Each repeat of the cases has servers of its own, for processes of one server are not independent of each other. The
    scheduler starts a repeat when the workers of the one before have ended.

    Use as a context: on leaving, the servers and all workers are gone. Within it, SIGINT and SIGTERM are raised as
    `KeyboardInterrupt` by `wait`, and while a server loads libraries: in the middle of starting or killing a worker
    they would leave a process that nobody knows of.

    Args:
        runs: by environment (`PlannedCase.environment`).
        own_cores: the cores that this process keeps to within the context; None: it may use all.
        woken_by: `wait` returns when there is something to read from one of these file descriptors, too.
    """

    def __init__(
        self,
        runs: Mapping[str, PoolRun],
        *,
        own_cores: tuple[int, ...] | None = None,
        woken_by: Sequence[int] = (),
    ) -> None:
        self._runs = runs
        self._pools = [run.pool for run in runs.values()]
        self._own_cores = own_cores
        self._woken_by = woken_by
        self._repeat: int | None = None  # of the cases that the servers' processes have measured
        self._pool_of: dict[int, Pool] = {}  # by ticket
        self._interrupts = Interrupts()
        self._shared: Path | None = None  # for files that the processes of a case share; made when it is needed

    def folder_of(self, planned: PlannedCase) -> Path:
        """The folder of the files that the processes of a case share. It is removed when its worker has ended.

        Whoever has run the last turn of a case removes it.
        """
        if self._shared is None:
            self._shared = Path(tempfile.mkdtemp(prefix="torchzoo-shared-"))
        return self._shared / safe_name(f"{planned.environment} {planned.case.label()}")

    def start(self, ticket: int, planned: PlannedCase, lane: Lane, log: Path) -> None:
        """See `torchzoo.run.workers.Workers`.

        Raises:
            OSError: there is no space for the worker's files.
            ServerError: no worker can be started.
            KeyboardInterrupt: a signal came while the server loads libraries.
        """
        assert planned.spec is not None
        if planned.case.repeat != self._repeat:
            assert not self._pool_of, "a repeat begins when the one before has ended"
            if self._repeat is not None:
                for pool in self._pools:
                    pool.renew()
            self._repeat = planned.case.repeat
            for pool in self._pools if planned.turn is None else ():
                pool.begin()  # all of them load at once
        run = self._runs[planned.environment]
        shared = self.folder_of(planned)
        if planned.holds_others:
            scratch = tempfile.mkdtemp(prefix="torchzoo-scratch-")
        else:
            scratch = str(shared)
            shared.mkdir(exist_ok=True)
        try:
            asked = run.request(planned, lane, log, scratch, shared)
            work, fresh_log = (WORK, "") if planned.turn is None else (WORK_FRESH, str(log))
            run.pool.start(ticket, work, to_json(asked), scratch, fresh_log)
        except (TorchzooError, OSError, KeyboardInterrupt):
            shutil.rmtree(scratch, ignore_errors=True)
            raise
        self._pool_of[ticket] = run.pool

    def wait(self, timeout_s: float) -> list[tuple[int, Message]]:
        """See `torchzoo.run.workers.Workers`. All messages of a worker are read before its end is reported.

        Raises:
            KeyboardInterrupt: SIGINT or SIGTERM came, during this call or since the last one.
            ServerError: what a server has sent can't be understood.
        """
        files = [pool.file for pool in self._pools if pool.file is not None]
        is_behind = any(pool.has_unread for pool in self._pools)
        ready = wait([*files, self._interrupts.noted, *self._woken_by], 0 if is_behind else timeout_s)
        if self._interrupts.noted in ready:
            raise KeyboardInterrupt
        return [message for pool in self._pools if pool.file in ready or pool.has_unread for message in pool.said()]

    def proceed(self, ticket: int, stage: Stage, limit_s: float | None = None) -> None:
        self._pool_of[ticket].tell(protocol.Proceed(ticket=ticket, stage=stage, limit_s=limit_s))

    def pause(self, ticket: int) -> None:
        self._pool_of[ticket].pause(ticket)

    def resume(self, ticket: int) -> None:
        self._pool_of[ticket].tell(protocol.Resume(ticket=ticket))

    def write_stacks(self, ticket: int, log: Path) -> None:
        self._pool_of[ticket].tell(protocol.WriteStacks(ticket=ticket, log=str(log)))

    def kill(self, ticket: int) -> None:
        if (pool := self._pool_of.pop(ticket, None)) is not None:  # else `start` failed
            pool.kill(ticket)

    def host_available_bytes(self) -> int:
        return available_bytes()

    def __enter__(self) -> PoolWorkers:
        self._interrupts.__enter__()
        for pool in self._pools:
            pool.interrupts = self._interrupts
        if self._own_cores is not None:
            pin(self._own_cores)
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        for pool in self._pools:
            pool.close()
            pool.interrupts = None
        if self._shared is not None:
            shutil.rmtree(self._shared, ignore_errors=True)
        if self._own_cores is not None:
            pin(self._pools[0].cores)
        self._interrupts.__exit__()
        if self._interrupts.came and kind is None:
            raise KeyboardInterrupt
