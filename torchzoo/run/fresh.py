"""A fresh Python process for one task: nothing is imported, forked or compiled before it starts."""

from __future__ import annotations

import contextlib
import os
import select
import socket
import subprocess
import sys
import tempfile
import threading
import time
import traceback
from pathlib import Path
from typing import Any, cast

import msgspec

import torchzoo
from torchzoo.backends import SCRATCH_VARIABLE, NotRunnable, cache_variables
from torchzoo.errors import attempt, written
from torchzoo.files import to_json
from torchzoo.machine import process
from torchzoo.machine.process import with_room
from torchzoo.measure.trial_records import Ask, Fresh, Took
from torchzoo.record import Failed, Skipped
from torchzoo.run.failures import died, failure, garbled, late
from torchzoo.run.lines import Garbled, LineReader, function_named, write_line
from torchzoo.run.process_tree import end_with_parent, kill_all
from torchzoo.settings import Stage

Outcome = Took | Skipped | Failed
#: How often the end of a process is looked for, in seconds. Its children may hold its channel open.
LOOK_S = 0.05
_messages: msgspec.json.Decoder[Any] = msgspec.json.Decoder(Stage | Outcome)


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
                kill_all(pid)

    def remove(self, pid: int) -> None:
        """End a process with all that it has started, before its number can be another one's."""
        with self._lock:
            kill_all(pid)
            self._pids.remove(pid)

    def end_all(self) -> None:
        """End all, and those that are started from now on."""
        with self._lock:
            self._is_over = True
            for pid in self._pids:
                kill_all(pid)


def outcome_of(ask: Ask, limit_s: float, alive: Alive) -> Outcome:
    """Start a process, wait for its end, and leave nothing of it behind.

    Args:
        ask: what to do.
        limit_s: a process that takes longer is killed.
        alive: where the process is noted while it runs.
    """
    ours, theirs = socket.socketpair()
    root = str(Path(torchzoo.__file__).parent.parent)
    code = f"import sys; sys.path.append({root!r}); from torchzoo.run.fresh import answer; answer()"
    with ours, theirs, tempfile.TemporaryDirectory(prefix="torchzoo-fresh-", ignore_cleanup_errors=True) as scratch:
        with Path(ask.log).open("ab") as log:
            started = subprocess.Popen(  # noqa: S603  our own code
                [sys.executable, "-c", code, str(theirs.fileno()), str(time.monotonic_ns())],
                env={**os.environ, **cache_variables(Path(ask.caches)), SCRATCH_VARIABLE: scratch},
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                pass_fds=[theirs.fileno()],
                start_new_session=True,
            )
        alive.add(started.pid)
        theirs.close()
        try:
            with contextlib.suppress(OSError):  # the process died before it read its task
                ours.sendall(to_json(ask) + b"\n")
            found = _heard(started, LineReader(ours.fileno(), _messages), limit_s, ask)
        finally:
            alive.remove(started.pid)
            status = started.wait()
    return died(status, found, Path(ask.log), who="the process") if isinstance(found, Stage) else found


def _heard(started: subprocess.Popen[bytes], reader: LineReader[Any], limit_s: float, ask: Ask) -> Outcome | Stage:
    """Return the outcome that a process sends in time; if it ends without, the stage in which it did so."""
    stage, until_s, is_running = Stage.START, time.monotonic() + limit_s, True
    while is_running:
        if time.monotonic() > until_s:
            return late("the process", limit_s, stage, Path(ask.log))
        is_running = started.poll() is None
        if is_running and reader.is_open:
            select.select([reader.file], [], [], LOOK_S)
        elif is_running:
            time.sleep(LOOK_S)
        for message in reader.read():
            if isinstance(message, Garbled):
                return garbled("the process", message.what, stage, Path(ask.log))
            if not isinstance(message, Stage):
                return cast(Outcome, message)
            stage = message
    return stage


@with_room
def answer() -> None:
    """Run the task of a fresh process. Its arguments are the file descriptor to the runner, and when it was started."""
    end_with_parent()
    process.keep_freed()
    channel, began_ns = int(sys.argv[1]), int(sys.argv[2])
    os.set_inheritable(channel, False)  # noqa: FBT003
    with os.fdopen(channel, "rb", closefd=False) as task:
        ask = msgspec.json.decode(task.readline(), type=Ask)
    if ask.cores:
        os.sched_setaffinity(0, ask.cores)
    stage = Stage.START

    def tell(new: Stage) -> None:
        nonlocal stage
        stage = new
        write_line(channel, to_json(new) + b"\n")

    found = attempt(lambda: _called(Fresh(ask=ask, began_ns=began_ns, tell=tell)))
    line = attempt(lambda: to_json(_outcome(found, stage, ask.log)))
    if isinstance(line, Exception):
        line = to_json(_outcome(line, stage, ask.log))
    write_line(channel, line + b"\n")


def _called(fresh: Fresh) -> Took:
    return Took(result=msgspec.to_builtins(function_named(fresh.ask.function)(fresh)))


def _outcome(found: Took | Exception, stage: Stage, log: str) -> Outcome:
    if isinstance(found, Took):
        return found
    if isinstance(found, NotRunnable):
        return Skipped(reason=written(str(found)))
    traceback.print_exception(found)
    return failure(found, stage, log)
