"""Run a plan: start workers, watch their stages and time limits, kill what hangs, and say what became of each case."""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import shutil
import signal
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from datetime import UTC, datetime
from functools import partial
from multiprocessing.connection import Connection, wait
from pathlib import Path
from typing import Any, Protocol

import msgspec

from torchzoo import worker
from torchzoo.environment import Facts
from torchzoo.plan import Plan
from torchzoo.record import Case, Failed, FailureKind, Outcome, Record, Settings, Stage
from torchzoo.spec import ModelSpec
from torchzoo.worker import Request


class TorchUnusable(RuntimeError):
    """Torch can't be imported in a worker; the message says why."""


class Exited(msgspec.Struct, frozen=True):
    """A worker's process is gone; `code` as `multiprocessing` gives it: negative for a signal."""

    code: int


Message = Stage | Outcome | Exited


class Worker(Protocol):
    """A started worker; tests fake it."""

    def next_message(self, timeout_s: float) -> Message | None:
        """The worker's next message, or None when `timeout_s` is over without one. `Exited` is the last."""
        ...

    def kill(self) -> None:
        """End the worker and all its children, at once."""
        ...


Launch = Callable[[Case, ModelSpec, Path], contextlib.AbstractContextManager[Worker]]


def run_plan(
    plan: Plan,
    launch: Launch,
    log_path: Callable[[int, Case], Path],
    stage_limit_s: float,
    on_stage: Callable[[Case, Stage], None] = lambda *_: None,
    now_s: Callable[[], float] = time.monotonic,
) -> Iterator[Record]:
    """One case after the other; yields each record as its case is settled, and never raises for what a case does."""
    for number, entry in enumerate(plan):
        started_at = _timestamp()
        if entry.settled is not None:
            outcome: Outcome = entry.settled
        else:
            assert entry.spec is not None
            log = log_path(number, entry.case)
            with launch(entry.case, entry.spec, log) as worker:
                outcome = watch(worker, log, stage_limit_s, partial(on_stage, entry.case), now_s)
        yield Record(case=entry.case, outcome=outcome, started_at=started_at, finished_at=_timestamp())


def watch(
    worker: Worker, log: Path, stage_limit_s: float, on_stage: Callable[[Stage], None], now_s: Callable[[], float]
) -> Outcome:
    """Follow one worker to its end; kill it when a stage takes longer than `stage_limit_s`."""
    stage = Stage.START
    deadline_s = now_s() + stage_limit_s
    outcome: Outcome | None = None
    while True:
        message = worker.next_message(max(0.0, deadline_s - now_s()))
        match message:
            case Stage():
                stage = message
                on_stage(stage)
                deadline_s = now_s() + stage_limit_s
            case None if outcome is not None:  # it said all, but does not end
                worker.kill()
                return outcome
            case None:
                worker.kill()
                text = f"{stage} took longer than {stage_limit_s:g} s and was killed"
                return Failed(kind=FailureKind.TIMEOUT, stage=stage, message=text, log=str(log))
            case Exited():
                return outcome or _died(message.code, stage, log)
            case _:
                outcome = message
                deadline_s = now_s() + min(stage_limit_s, 10.0)


def _died(code: int, stage: Stage, log: Path) -> Failed:
    """A worker that ended without an outcome."""
    if code < 0:
        name = signal.Signals(-code).name if -code in set(signal.Signals) else f"signal {-code}"
        hint = "; the kernel does so when the host's memory is full" if -code == signal.SIGKILL else ""
        message = f"the worker was ended by {name} in {stage}{hint}"
    else:
        message = f"the worker exited with status {code} in {stage} without a result"
    return Failed(kind=FailureKind.CRASHED, stage=stage, message=message, traceback=_tail(log), log=str(log))


def _tail(log: Path, characters: int = 4000) -> str:
    try:
        return log.read_text(encoding="utf-8", errors="replace")[-characters:]
    except OSError:
        return ""


def _timestamp() -> str:
    return datetime.now(UTC).isoformat(timespec="milliseconds")


class WorkerPool:
    """Real workers: forked from a server that has torch and the models' libraries loaded, spawned where it can't be.

    Starting a worker so takes a fraction of a second instead of seconds. The server never touches a device:
    `PYTORCH_NVML_BASED_CUDA_CHECK` keeps PyTorch from initialising CUDA when it only counts devices.
    """

    def __init__(self, libraries: Sequence[str], settings: Settings) -> None:
        self._settings = settings
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

    @contextlib.contextmanager
    def launch(self, case: Case, spec: ModelSpec, log: Path) -> Iterator[Worker]:
        """Start the worker of one case; on leaving, nothing of it is left: no process, no scratch folder."""
        scratch = tempfile.mkdtemp(prefix="torchzoo-scratch-")
        request = Request(case=case, spec=spec, settings=self._settings, log=str(log), scratch=scratch)
        receiver, sender = self._context.Pipe(duplex=False)
        process = self._context.Process(target=worker.work, args=(request, sender), daemon=False)
        process.start()
        sender.close()
        started = _ProcessWorker(process, receiver)
        try:
            yield started
        finally:
            started.kill()
            process.join()
            receiver.close()
            shutil.rmtree(scratch, ignore_errors=True)


class _ProcessWorker:
    """A worker process that leads its own process group, and the pipe it reports through."""

    def __init__(self, process: multiprocessing.process.BaseProcess, receiver: Connection) -> None:
        self._process = process
        self._receiver = receiver
        self._is_open = True

    def next_message(self, timeout_s: float) -> Message | None:
        waited: list[Connection | int] = [self._process.sentinel]
        if self._is_open:
            waited.append(self._receiver)
        ready = wait(waited, timeout_s)
        if not ready:
            return None
        if self._receiver in ready:
            try:
                message: Message = self._receiver.recv()
            except (EOFError, OSError):
                self._is_open = False
                return self.next_message(timeout_s)
            return message
        self._process.join()
        code = self._process.exitcode
        return Exited(code if code is not None else -signal.SIGKILL)

    def kill(self) -> None:
        pid = self._process.pid
        assert pid is not None
        # The group first: it holds the compilers' own processes too. It does not exist until the worker has made it.
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(pid, signal.SIGKILL)
        self._process.kill()
