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
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TypeVar

import msgspec

from torchzoo.files import FileError, read_json
from torchzoo.history.changes import Confirmed, Proposal
from torchzoo.history.culprits import Step
from torchzoo.history.inductor_script import Inside
from torchzoo.run.experiment import OnRecord, ignore
from torchzoo.run.request import RunRequest
from torchzoo.store import StoreError, lock_folder, read_run, write_json

NIGHTS, RUN = "nights", "run"
ASKED, NIGHT = "asked.json", "night.json"
_STAMP = "%Y%m%dT%H%M%SZ"
_Read = TypeVar("_Read", bound=msgspec.Struct)


class NightAsked(msgspec.Struct, frozen=True, kw_only=True):
    """The request of a night."""

    spec: str  # the SPEC as it was given
    software: str  # the SPEC in full: a commit by its whole name
    request: RunRequest


class Options(msgspec.Struct, frozen=True, kw_only=True):
    """The options of a call of `torchzoo watch`, and the callbacks that show progress."""

    root: Path
    spec: str
    request: RunRequest
    bisects: bool = True
    posts: bool = False  # whether issues are posted with gh, and not only written
    repository: str | None = None  # OWNER/NAME to post to; None: as gh finds it
    show: Callable[[str], None]  # a line
    on_record: OnRecord = ignore
    on_step: Callable[[Step], None] = ignore


class NightWork(msgspec.Struct, frozen=True, kw_only=True):
    """A night at work."""

    folder: Path
    asked: NightAsked
    options: Options
    remarks: list[str]  # what could not be done so far, and why

    def remark(self, text: str) -> None:
        """Keep a remark, and show it."""
        self.remarks.append(text)
        self.options.show(text)


class NightStatus(enum.StrEnum):
    GOOD = "good"  # nothing was confirmed
    REGRESSED = "regressed"
    UNDECIDED = "undecided"  # a proposal could not be decided


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
    """Lock the folder of a watch, which is made if it does not exist."""
    lock = lock_folder(root, subfolder=NIGHTS, owner="torchzoo watch", advice="name another folder")
    try:
        yield
    finally:
        lock.release()


def night_folders(root: Path) -> list[Path]:
    """Return the folders of all nights, in the order of time."""
    return sorted(path.parent for path in (root / NIGHTS).glob(f"*/{ASKED}"))


def finished_nights(root: Path) -> list[Night]:
    """Return the results of the finished nights, in the order of time. A file that can't be read is a `StoreError`."""
    return [read_night(path, Night) for folder in night_folders(root) if (path := folder / NIGHT).is_file()]


def read_night(path: Path, kind: type[_Read]) -> _Read:
    """Read `asked.json` or `night.json`."""
    try:
        return read_json(path, kind)
    except FileError as error:
        raise StoreError(f"{path} can't be read: {error}; remove {path.parent}, or mend it") from error


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


def finish(folder: Path, night: Night) -> None:
    """Write the result of a night, which is then not continued."""
    write_json(folder / NIGHT, night)


def is_measured(folder: Path) -> bool:
    """Whether a run exists that has a record of each of its cases."""
    return (folder / "run.json").is_file() and read_run(folder).is_whole
