"""What the scheduler needs of worker processes, and what it knows of each of them."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

import msgspec

from torchzoo.record import CheckStatus, Failed, FailureKind, Measured, Outcome
from torchzoo.run.lanes import Lane
from torchzoo.run.lines import Garbled
from torchzoo.run.plan import PlannedCase
from torchzoo.settings import Stage


class Exited(msgspec.Struct, frozen=True, tag=True):
    """A worker's process is gone; `code` is negative for a signal. `with_server`: since its server has ended."""

    code: int
    with_server: bool = False


class Timed(msgspec.Struct, frozen=True, tag="timed"):
    """What a worker has measured so far. If it fails in what it does afterwards, this is not lost."""

    measured: Measured


def cut_short(measured: Measured, failed: Failed) -> Measured:
    """A case that was measured, and failed afterwards. A check that had not come to its end says why."""
    check = measured.check
    if check is not None and check.status is CheckStatus.NOT_REACHED:
        check = msgspec.structs.replace(check, reason=f"{failed.kind} in {failed.stage}: {failed.message}")
    return msgspec.structs.replace(measured, check=check, cut_short=failed)


Message = Stage | Outcome | Timed | Garbled | Exited


class Workers(Protocol):
    """Processes by ticket. `torchzoo.run.pool` has the real ones; tests use fakes."""

    def start(self, ticket: int, planned: PlannedCase, lane: Lane, log: Path) -> None: ...

    def wait(self, timeout_s: float) -> list[tuple[int, Message]]:
        """The messages that came within `timeout_s`, each with its ticket. `Exited` is a ticket's last message."""
        ...

    def proceed(self, ticket: int, stage: Stage, limit_s: float | None = None) -> None:
        """Let a worker that waits begin this stage: measuring, its check, or, with several ranks, examining.

        `limit_s` is the most time that a worker may time steps when it is measured; None: as its settings say.
        """
        ...

    def pause(self, ticket: int) -> None:
        """Stop a worker's whole process tree."""
        ...

    def resume(self, ticket: int) -> None: ...

    def write_stacks(self, ticket: int, log: Path) -> None:
        """Let a worker and its ranks write into the worker's log what they are doing, as far as they can."""
        ...

    def kill(self, ticket: int) -> None:
        """End a worker's whole process tree, at once, and forget it."""
        ...

    def host_available_bytes(self) -> int: ...


@dataclass
class Running:
    """What the scheduler knows of a worker."""

    planned: PlannedCase
    lane: Lane
    log: Path
    started_at: str
    deadline_s: float
    device_bytes: float  # device memory that it is expected to need until it has been measured
    host_bytes: float  # host memory, likewise
    stage: Stage = Stage.START
    outcome: Outcome | None = None
    timed: Measured | None = None  # what it has measured so far, from its timing on
    paused_at_s: float | None = None  # when it was stopped; None while it runs
    paused_s: float = 0.0  # how long it was stopped before that
    is_late: bool = False  # its time is over, and it was told to write into its log what it does
    had_siblings: bool = False
    lost_server: bool = False  # its server has ended, perhaps through another worker
    is_retry: bool = False

    @property
    def name(self) -> str:
        """What messages call it."""
        return "the process" if self.planned.holds_others else "the worker"

    def final(self, outcome: Outcome) -> Outcome:
        """What is recorded. A worker that failed after its timing has measured its case: the record has both."""
        if isinstance(outcome, Failed) and outcome.kind is not FailureKind.NOT_FINITE and self.timed is not None:
            return cut_short(self.timed, outcome)
        return outcome
