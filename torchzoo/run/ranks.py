"""The other ranks of a case: forked from its worker before it touches a device, in the same process group."""

from __future__ import annotations

import contextlib
import os
import signal
import threading
import time
import traceback
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from multiprocessing import Pipe
from multiprocessing.connection import Connection, wait
from typing import Any

import msgspec

from torchzoo.backends import NotRunnable
from torchzoo.errors import attempt, written
from torchzoo.machine.limits import pin
from torchzoo.record import Failed, Outcome, Skipped
from torchzoo.run.process_tree import end_with_parent, name_process

#: The names of the ranks' processes, with their numbers behind it (at most 15 characters).
RANK_NAME = "torchzoo-rank"
#: Ranks often fail together. So long rank 0 has time to fail by itself when another rank has.
TIME_TO_FAIL_S = 3.0
#: So long rank 0, which has failed, waits for another rank that may have failed before it.
TIME_TO_REPORT_S = 1.0


class Report(msgspec.Struct, frozen=True, kw_only=True):
    """What a rank says when it fails."""

    failed_s: float  # by time.monotonic, which all processes of a machine share
    outcome: Failed | Skipped


@dataclass(frozen=True)
class Rank:
    """Another rank, as rank 0 sees it."""

    number: int
    pid: int
    line: Connection  # what rank 0 tells it, and its answers
    report: Connection  # why it failed


def fork_ranks(
    devices: Sequence[str],
    cores: Sequence[tuple[int, ...] | None],
    follow: Callable[[int, str, Connection], None],
    failure: Callable[[BaseException], Failed],
    close: Sequence[Connection],
) -> list[Rank]:
    """Fork a process for each device but the first, which is rank 0's.

    Args:
        devices: one for each rank.
        cores: those of each rank; None: it may use all.
        follow: what a rank does, given its number, its device and its line to rank 0.
        failure: the outcome that an exception is.
        close: what only rank 0 holds open.
    """
    ranks: list[Rank] = []
    for number, device in list(enumerate(devices))[1:]:
        ours, theirs = Pipe()
        report, reporter = Pipe(duplex=False)
        pid = os.fork()
        if not pid:
            for one in (ours, report, *close, *(other for rank in ranks for other in (rank.line, rank.report))):
                one.close()
            _live(number, device, cores[number], theirs, reporter, follow, failure)
        theirs.close()
        reporter.close()
        ranks.append(Rank(number, pid, ours, report))
    return ranks


def _live(
    number: int,
    device: str,
    cores: Sequence[int] | None,
    line: Connection,
    reporter: Connection,
    follow: Callable[[int, str, Connection], None],
    failure: Callable[[BaseException], Failed],
) -> None:
    """The life of another rank. It never returns."""

    def live() -> None:
        end_with_parent()
        name_process(f"{RANK_NAME}{number}")
        if cores is not None:
            pin(cores)
        follow(number, device, line)

    code = 1
    try:
        error = attempt(live)
        if error is not None:
            failed_s = time.monotonic()
            traceback.print_exception(error)
            with contextlib.suppress(OSError):
                report = Report(failed_s=failed_s, outcome=_outcome(number, error, failure))
                reporter.send_bytes(msgspec.json.encode(report))
        else:
            code = 0
    finally:  # the copy of the worker must not run on, whatever happens in it
        os._exit(code)


def _outcome(number: int, error: Exception, failure: Callable[[BaseException], Failed]) -> Failed | Skipped:
    if isinstance(error, NotRunnable):
        return Skipped(reason=written(str(error)))
    failed = failure(error)
    return msgspec.structs.replace(failed, message=f"rank {number}: {failed.message}")


class Watch:
    """Waits for the first rank that fails. Rank 0 may stand in a collective for ever that this rank does not join.

    Args:
        ranks: the other ranks.
        died: the outcome of a rank that ended without a report.
        send: sends the outcome of the case; after that, all ranks are killed.
    """

    def __init__(
        self, ranks: Sequence[Rank], died: Callable[[int, int], Failed], send: Callable[[Outcome], None]
    ) -> None:
        self._ranks = ranks
        self._died = died
        self._send = send
        self._lock = threading.Lock()
        self._is_over = False
        self._first: Report | None = None
        self._came = threading.Event()
        if ranks:
            threading.Thread(target=self._wait, daemon=True, name="torchzoo-ranks").start()

    def cause(self, failed_s: float) -> Outcome | None:
        """What made rank 0 fail at that time (of `time.monotonic`), if it was another rank: what that one says.

        Where one rank ends, the others fail in the collective that they share with it.
        """
        if self._ranks and self._came.wait(TIME_TO_REPORT_S) and self._first is not None:
            return self._first.outcome if self._first.failed_s <= failed_s else None
        return None

    def end(self, send: Callable[[], Any]) -> None:
        """Send the outcome of the case, unless this process has sent it already, and end the other ranks."""
        with self._lock:
            self._is_over = True
            send()
        for rank in self._ranks:
            with contextlib.suppress(ProcessLookupError):
                os.kill(rank.pid, signal.SIGKILL)

    def _wait(self) -> None:
        by_report = {rank.report: rank for rank in self._ranks}
        report = wait(list(by_report))[0]
        assert isinstance(report, Connection)
        rank = by_report[report]
        try:
            self._first = msgspec.json.decode(report.recv_bytes(), type=Report)
        except (EOFError, OSError):
            _, status = os.waitpid(rank.pid, 0)
            died = self._died(rank.number, os.waitstatus_to_exitcode(status))
            self._first = Report(failed_s=0.0, outcome=died)  # before all that could follow from it
        self._came.set()
        time.sleep(TIME_TO_FAIL_S)
        with self._lock:
            if not self._is_over:
                self._is_over = True
                self._send(self._first.outcome)
                os.killpg(0, signal.SIGKILL)
