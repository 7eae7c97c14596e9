"""The process in which a candidate is alone: forked from the case's worker, with a time limit of its own."""

from __future__ import annotations

import contextlib
import os
import time
import traceback
from collections.abc import Callable
from multiprocessing import Pipe
from multiprocessing.connection import Connection
from pathlib import Path
from typing import TypeVar

import msgspec

from torchzoo.backends import NotRunnable
from torchzoo.errors import attempt, written
from torchzoo.record import CANDIDATE_VARIANT, Alone, Checked, Failed, Measured, Skipped
from torchzoo.run.failures import STACKS_SIGNAL, died, failure, late
from torchzoo.run.process_tree import kill_all
from torchzoo.settings import Stage

_Found = TypeVar("_Found", bound=Measured | Checked)

LOOK_S = 0.5  # a wait that takes longer: this process was stopped meanwhile
STACK_S = 0.5  # so long a process that is late has to write into the log what it does


class _Answer(msgspec.Struct, frozen=True, kw_only=True):
    alone: Alone | None = None
    why_not: Skipped | Failed | None = None


def alone_in_process(measure: Callable[[], Alone], limit_s: float, log: str) -> Alone | Skipped | Failed:
    """Measure in a new process, and end that process with all that it has started. Whatever it does, this one goes on.

    Args:
        measure: what the process does. It may change the process, and raise.
        limit_s: a process that takes longer is killed. The time in which both are stopped does not count.
        log: where the output of both goes.
    """
    reading, writing = Pipe(duplex=False)
    pid = os.fork()
    if not pid:
        _live(measure, writing, log)
    writing.close()
    answer = _read(reading, limit_s)
    if answer is None:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, STACKS_SIGNAL)
        time.sleep(STACK_S)
    kill_all(pid)
    code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    reading.close()
    if answer is None:
        return late("it", limit_s, Stage.ALONE, Path(log))
    found = answer.alone or answer.why_not
    return found or died(code, Stage.ALONE, Path(log), who="the process")


def with_alone(measured: _Found, found: Alone | Skipped | Failed | None) -> _Found:
    """The measured case with what was found of its candidate alone, or why that is not there. None: nobody asked."""
    if found is None or not isinstance(measured, Measured):
        return measured
    fields = {"alone": found} if isinstance(found, Alone) else {"why_not_alone": found}
    candidate = msgspec.structs.replace(measured.variants[CANDIDATE_VARIANT], **fields)
    return msgspec.structs.replace(measured, variants={**measured.variants, CANDIDATE_VARIANT: candidate})


def _read(reading: Connection, limit_s: float) -> _Answer | None:
    """What the process says; an empty answer if it ended before it said anything; None if its time is over."""
    left_s = limit_s
    while left_s > 0:
        began_s = time.monotonic()
        if reading.poll(min(LOOK_S, left_s)):
            try:
                return msgspec.json.decode(reading.recv_bytes(), type=_Answer)
            except EOFError:
                return _Answer()
        left_s -= min(time.monotonic() - began_s, LOOK_S)
    return None


def _live(measure: Callable[[], Alone], writing: Connection, log: str) -> None:
    """The life of the process. It never returns."""
    try:  # the copy of the worker must not run on, whatever happens in it
        os.register_at_fork(after_in_child=writing.close)  # compilers' processes must not hold the pipe open
        found = attempt(measure)
        if isinstance(found, NotRunnable):
            answer = _Answer(why_not=Skipped(reason=written(str(found))))
        elif isinstance(found, Exception):
            traceback.print_exception(found)
            answer = _Answer(why_not=failure(found, Stage.ALONE, log))
        else:
            answer = _Answer(alone=found)
        writing.send_bytes(msgspec.json.encode(answer))
    finally:
        os._exit(0)
