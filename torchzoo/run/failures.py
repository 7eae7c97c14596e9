"""What an exception of a case, or the end of its process, is in its record: its kind, one line, the end of a trace."""

from __future__ import annotations

import signal
import traceback
from pathlib import Path

from torchzoo.backends import NotFiniteByBackend
from torchzoo.errors import written
from torchzoo.record import Failed, FailureKind
from torchzoo.settings import Stage

#: A worker that gets it writes into its log what its threads do, and goes on.
STACKS_SIGNAL = signal.SIGUSR2


def failure(error: BaseException, stage: Stage, log: str) -> Failed:
    """The failure that an exception is. Its message is cut to one line; the end of the traceback is kept."""
    text = " ".join(str(error).split())
    return Failed(
        kind=_kind(error),
        stage=stage,
        message=written(f"{type(error).__name__}: {text[:300]}" if text else type(error).__name__),
        traceback=written(end_of("".join(traceback.format_exception(error)))),
        log=log,
    )


def end_of(text: str, characters: int = 4000) -> str:
    """The last lines that are so long together at most. Of a line that is longer by itself, its end."""
    end = text[-characters:]
    if len(end) == len(text) or text[-characters - 1] == "\n":
        return end
    _, _, whole = end.partition("\n")
    return whole or end


def _kind(error: BaseException) -> FailureKind:
    chain: list[BaseException] = []
    link: BaseException | None = error
    while link is not None and link not in chain:
        chain.append(link)
        link = link.__cause__ or link.__context__
    if any(type(link).__name__ == "OutOfMemoryError" for link in chain):  # torch's, without importing torch
        return FailureKind.OOM_DEVICE
    refusals = ("can't allocate memory", "cannot allocate memory", "bad_alloc")
    if any(isinstance(link, MemoryError) or any(words in str(link).lower() for words in refusals) for link in chain):
        return FailureKind.OOM_HOST
    if isinstance(error, NotFiniteByBackend):
        return FailureKind.NOT_FINITE
    return FailureKind.ERROR


def died(code: int, stage: Stage, log: Path, who: str = "the worker") -> Failed:
    """The failure of a process that ended without sending an outcome: its exit code, negative for a signal."""
    if code < 0:
        name = signal.Signals(-code).name if -code in set(signal.Signals) else f"signal {-code}"
        hint = "; the kernel does so when the host's memory is full" if -code == signal.SIGKILL else ""
        message = f"{who} was ended by {name} in {stage}{hint}"
    else:
        message = f"{who} exited with status {code} in {stage} without a result"
    return Failed(kind=FailureKind.CRASHED, stage=stage, message=message, traceback=log_tail(log), log=str(log))


def late(what: str, limit_s: float, stage: Stage, log: Path) -> Failed:
    """The failure of a process that was killed because its time was over; `what` is what took so long."""
    message = f"{what} took longer than {limit_s:g} s and was killed"
    return Failed(kind=FailureKind.TIMEOUT, stage=stage, message=message, traceback=log_tail(log, 8000), log=str(log))


def garbled(who: str, what: str, stage: Stage, log: Path) -> Failed:
    """The failure of a process that was killed because it sent what is no message."""
    message = f"{who} can't be understood, and was killed: {what}"
    return Failed(kind=FailureKind.CRASHED, stage=stage, message=message, log=str(log))


def log_tail(log: Path, characters: int = 4000) -> str:
    """The end of a log; empty if it can't be read."""
    try:
        with log.open("rb") as file:
            file.seek(max(0, log.stat().st_size - 4 * characters))  # a character has up to four bytes
            return end_of(file.read(4 * characters).decode("utf-8", errors="replace"), characters)
    except OSError:
        return ""
