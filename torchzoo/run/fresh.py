"""One question to a fresh Python process: nothing is imported, forked or compiled before it starts."""

from __future__ import annotations

import os
import shlex
import signal
import subprocess
import sys
import tempfile
import threading
import time
from importlib import import_module
from pathlib import Path

import msgspec

import torchzoo
from torchzoo.backends import SCRATCH_VARIABLE, NotRunnable, cache_variables
from torchzoo.errors import attempt, written
from torchzoo.files import to_json
from torchzoo.machine import process
from torchzoo.machine.process import with_room
from torchzoo.measure.trial_records import Ask, Fresh, Took
from torchzoo.record import Failed, FailureKind, Skipped
from torchzoo.run import prctl, reaper
from torchzoo.settings import Stage

Outcome = Took | Skipped | Failed
_outcomes: msgspec.json.Decoder[Outcome] = msgspec.json.Decoder(Outcome)


class Alive:
    """The fresh processes that run now. Several threads start them, and one ends them all."""

    def __init__(self) -> None:
        self._pids: set[int] = set()
        self._lock = threading.Lock()
        self._is_over = False

    def add(self, pid: int) -> None:
        """Note a process. When all have been ended, it is ended at once."""
        with self._lock:
            self._pids.add(pid)
            if self._is_over:
                reaper.kill_all(pid)

    def remove(self, pid: int) -> None:
        """End a process with all that it has started, before its number can be another one's."""
        with self._lock:
            reaper.kill_all(pid)
            self._pids.remove(pid)

    def end_all(self) -> None:
        """End all, and those that are started from now on."""
        with self._lock:
            self._is_over = True
            for pid in self._pids:
                reaper.kill_all(pid)


def outcome_of(ask: Ask, limit_s: float, alive: Alive) -> Outcome:
    """Start a process, wait for its end, and leave nothing of it behind. What it took, or why it did not.

    Args:
        ask: what to do.
        limit_s: a process that takes longer is killed.
        alive: where the process is noted while it runs.
    """
    with tempfile.TemporaryDirectory(prefix="torchzoo-fresh-", ignore_cleanup_errors=True) as scratch:
        own = Path(scratch)
        (own / "ask").write_bytes(to_json(ask))
        environment = {
            **os.environ,
            **cache_variables(Path(ask.caches)),
            SCRATCH_VARIABLE: scratch,
        }
        root = str(Path(torchzoo.__file__).parent.parent)
        code = f"import sys; sys.path.append({root!r}); from torchzoo.run.fresh import answer; answer()"
        with Path(ask.log).open("ab") as log:
            process = subprocess.Popen(  # noqa: S603  our own code
                [sys.executable, "-c", code, scratch, str(time.monotonic_ns())],
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
        alive.add(process.pid)
        is_late = False
        try:
            process.wait(limit_s)
        except subprocess.TimeoutExpired:
            is_late = not (own / "outcome").exists()  # what is written from now on came too late
        finally:
            alive.remove(process.pid)
            status = process.wait()
        if not is_late and (own / "outcome").exists():
            return _outcomes.decode((own / "outcome").read_bytes())
        stage = Stage((own / "stage").read_text()) if (own / "stage").exists() else Stage.START
        if is_late:
            return Failed(kind=FailureKind.TIMEOUT, stage=stage, message=f"took longer than {limit_s:g} s", log=ask.log)
        how = signal.Signals(-status).name if status < 0 else f"status {status}"
        return Failed(
            kind=FailureKind.CRASHED,
            stage=stage,
            message=f"the process ended with {how}, and said nothing: see {shlex.quote(ask.log)}",
            log=ask.log,
        )


@with_room
def answer() -> None:
    """What the fresh process runs: its arguments are the folder with the question, and when it was started."""
    prctl.end_with_parent()
    process.keep_freed()
    own, began_ns = Path(sys.argv[1]), int(sys.argv[2])
    ask = msgspec.json.decode((own / "ask").read_bytes(), type=Ask)
    if ask.cores:
        os.sched_setaffinity(0, ask.cores)
    stage = Stage.START

    def tell(new: Stage) -> None:
        nonlocal stage
        stage = new
        (own / "stage").write_text(new)

    found = attempt(lambda: _called(Fresh(ask=ask, began_ns=began_ns, tell=tell)))
    line = attempt(lambda: to_json(_outcome(found, stage, ask.log)))
    if isinstance(line, Exception):
        line = to_json(_outcome(line, stage, ask.log))
    unfinished = own / "unfinished"
    unfinished.write_bytes(line)
    unfinished.rename(own / "outcome")


def _called(fresh: Fresh) -> Took:
    module, _, function = fresh.ask.function.partition(":")
    return Took(result=msgspec.to_builtins(getattr(import_module(module), function)(fresh)))


def _outcome(found: Took | Exception, stage: Stage, log: str) -> Outcome:
    if isinstance(found, Took):
        return found
    if isinstance(found, NotRunnable):
        return Skipped(reason=written(str(found)))
    import traceback

    from torchzoo.run.failures import failure

    traceback.print_exception(found)
    return failure(found, stage, log)
