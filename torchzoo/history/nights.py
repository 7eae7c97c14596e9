"""The folder of a watch: a folder for each night, with all that was measured and found.

    nights/STAMP/asked.json     the request of the night
    nights/STAMP/run/           the run of the suite
    nights/STAMP/confirm/       an A/B of tonight's software and an earlier one: base and candidate (confirm-2 ...)
    nights/STAMP/bisect/        the bisection, and the A/B of each culprit (culprit-1 ...)
    nights/STAMP/issue-1.md     the body of an issue; its first line is the title
    nights/STAMP/issue-1.url    where the issue was posted
    nights/STAMP/night.json     the result of the night, written last. A night without it is continued.
    .lock                       locked by the process that works here

A stamp is the UTC time at which the night began, such as 20261122T020000Z.
"""

from __future__ import annotations

import contextlib
import enum
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, TypeVar

import msgspec

from torchzoo.case import Case
from torchzoo.errors import attempt, one_line
from torchzoo.files import read_file, to_json
from torchzoo.history.into_inductor import Inside
from torchzoo.history.proposals import Kind, Proposal
from torchzoo.run.request import RunRequest
from torchzoo.stats import Estimate
from torchzoo.store import Run, StoreError, lock_folder, read_run, write_whole

NIGHTS, RUN = "nights", "run"
ASKED, NIGHT = "asked.json", "night.json"
_STAMP = "%Y%m%dT%H%M%SZ"
_MOST_BYTES = 64 * 2**20
_Read = TypeVar("_Read", bound=msgspec.Struct)


class NightAsked(msgspec.Struct, frozen=True, kw_only=True):
    """The request of a night."""

    spec: str  # the SPEC as it was given
    software: str  # the SPEC in full: a commit by its whole name
    request: RunRequest


class NightStatus(enum.StrEnum):
    GOOD = "good"  # nothing was confirmed
    REGRESSED = "regressed"
    UNDECIDED = "undecided"  # a proposal could not be decided


class Confirmed(msgspec.Struct, frozen=True, kw_only=True):
    """A change for the worse that an A/B showed."""

    case: Case
    kind: Kind
    base: str  # the last night before it
    ratio: Estimate | None = None  # tonight's software over an earlier one's; None if the status changed
    words: str  # for people: `10.0 ms -> 11.0 ms, 1.100x [1.090, 1.110]`

    @property
    def label(self) -> str:
        """The case and the kind of change: `resnet18 eval cpu eager bs4: latency`."""
        return f"{self.case.label()}: {self.kind.words}"


class Blamed(msgspec.Struct, frozen=True, kw_only=True):
    """The version that caused changes: one of `specs`, which are several if versions could not be judged."""

    before: str  # SPEC: the last version without the change
    specs: tuple[str, ...]
    probability: float  # 1 if the version follows the good one directly
    about: str  # of a commit: who made it, when, and its subject
    explains: tuple[Confirmed, ...]
    inside: Inside | None = None  # the part of inductor at fault, if it was searched


class Night(msgspec.Struct, frozen=True, kw_only=True):
    """The result of a night."""

    stamp: str
    status: NightStatus
    software: str  # a SPEC in full
    proposed: tuple[Proposal, ...] = ()
    confirmed: tuple[Confirmed, ...] = ()
    blamed: tuple[Blamed, ...] = ()
    issues: tuple[str, ...] = ()  # names of files, or addresses
    remarks: tuple[str, ...] = ()  # what could not be done, and why


@contextlib.contextmanager
def locked(root: Path) -> Iterator[None]:
    """Lock the folder of a watch, which is made if it does not exist.

    Raises:
        StoreError: it can't be written, or another process works there.
    """
    lock = lock_folder(root, subfolder=NIGHTS, owner="torchzoo watch", advice="name another folder")
    try:
        yield
    finally:
        lock.release()


def night_folders(root: Path) -> list[Path]:
    """Return the folders of all nights, in the order of time."""
    return sorted(path.parent for path in (root / NIGHTS).glob(f"*/{ASKED}"))


def finished_nights(root: Path) -> list[Night]:
    """Return the results of the finished nights, in the order of time.

    Raises:
        StoreError: a file can't be read.
    """
    paths = [folder / NIGHT for folder in night_folders(root)]
    return [_read(path, Night) for path in paths if path.is_file()]


def unfinished(root: Path) -> Path | None:
    """Return the folder of the last night, if it was interrupted."""
    folders = night_folders(root)
    return folders[-1] if folders and not (folders[-1] / NIGHT).is_file() else None


def begin(root: Path, asked: NightAsked, now: datetime) -> Path:
    """Make and return the folder of a new night, which comes after all others."""
    names = [path.name for path in (root / NIGHTS).iterdir()]
    now = now.astimezone(UTC)
    while names and now.strftime(_STAMP) <= max(names):
        now += timedelta(seconds=1)
    folder = root / NIGHTS / now.strftime(_STAMP)
    folder.mkdir()
    write_json(folder / ASKED, asked)
    return folder


def read_asked(folder: Path) -> NightAsked:
    """Return the request of a night.

    Raises:
        StoreError: its file can't be read.
    """
    return _read(folder / ASKED, NightAsked)


def finish(folder: Path, night: Night) -> None:
    """Write the result of a night, which is then not continued."""
    write_json(folder / NIGHT, night)


def write_json(path: Path, value: Any) -> None:
    """Write a struct as JSON, whole or not at all."""
    write_whole(path, msgspec.json.format(to_json(value), indent=1) + b"\n")


def _read(path: Path, kind: type[_Read]) -> _Read:
    found = attempt(lambda: msgspec.json.decode(read_file(path, _MOST_BYTES), type=kind))
    if isinstance(found, Exception):
        raise StoreError(f"{path} can't be read: {one_line(found)}; remove {path.parent}, or mend it") from found
    return found


def is_measured(folder: Path) -> bool:
    """Whether a run exists that has a record of each of its cases.

    Raises:
        StoreError: the run can't be read.
    """
    if not (folder / "run.json").is_file():
        return False
    run = read_run(folder)
    return {record.case for record in run.finished} >= set(run.manifest.cases)


def run_of(root: Path, stamp: str) -> Run:
    """Return the run of a night.

    Raises:
        StoreError: it can't be read.
    """
    return read_run(root / NIGHTS / stamp / RUN)
