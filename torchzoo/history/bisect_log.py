"""The folder of a bisection: its request, and each verdict. A bisection that was killed can resume from the folder.

- `bisect.json`: the request, with all versions in order. An index may offer other versions later.
- `bisect.jsonl`: one verdict a line. A verdict is on disk before the next version is chosen.
- `.lock`: locked by the process that works here.

The judge keeps the records of its measurements in this folder, too.
"""

from __future__ import annotations

import datetime as dt
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from torchzoo.errors import attempt, one_line
from torchzoo.files import FileError, read_file, to_json
from torchzoo.history.bisection import Evidence, Judgement
from torchzoo.history.proposals import Kind
from torchzoo.run.request import RunRequest
from torchzoo.stats import Estimate
from torchzoo.store import StoreError, append_line, lock_folder, write_whole

if TYPE_CHECKING:
    from filelock import FileLock

#: The limit on the size of `bisect.json`. A hundred thousand commits take some 10 MiB.
ASKED_BYTES = 64 * 2**20


class Asked(msgspec.Struct, frozen=True, kw_only=True):
    """The request of a bisection: the change to search for, and the versions."""

    good: str  # SPECs as they were given
    bad: str
    versions: tuple[str, ...]  # SPECs in order; the first is the good one, the last the bad one
    request: RunRequest  # one model, and one value of each axis
    kind: Kind  # what changed: a metric, or what becomes of the case
    threshold: float | None = None  # the least difference that matters: 0.07 for 7%; None: what the noise allows
    lanes: int = 1  # slots
    words: tuple[str, ...] = ()  # of a command line that asks for the same case
    pre_releases: bool = False


class LoggedVerdict(msgspec.Struct, frozen=True, kw_only=True):
    """A verdict from a measurement of `midpoint` against `good`."""

    good: str
    midpoint: str
    effort: int
    evidence: Evidence
    finished_at: str  # UTC, ISO 8601
    number: int = 1  # of the judgements of `midpoint` against `good`


class BisectLog:
    """Write and read the folder of a bisection, which is locked inside the context of this object.

    Args:
        path: the folder.
        resume: whether the folder holds a bisection to continue; if not, it must not hold one.

    Raises:
        StoreError: on entering. The folder can't be written, another process works on it, or it holds a bisection where
            it should not, or none where it should.
    """

    def __init__(self, path: Path, *, resume: bool = False) -> None:
        self.path = path
        self.resume = resume
        self._lock: FileLock | None = None

    def __enter__(self) -> BisectLog:
        asked = self.path / "bisect.json"
        if self.resume and not asked.is_file():
            raise StoreError(f"no bisection in {self.path}: there is no file bisect.json")
        lock = lock_folder(self.path)
        if not self.resume and asked.exists():
            lock.release()
            raise StoreError(
                f"{self.path} holds a bisection already: go on with --resume {self.path}, or name another folder"
            )
        self._lock = lock
        return self

    def __exit__(self, *_: object) -> None:
        assert self._lock is not None
        self._lock.release()

    def begin(self, asked: Asked) -> None:
        """Write the request."""
        write_whole(self.path / "bisect.json", msgspec.json.format(to_json(asked), indent=1) + b"\n")

    def take_back(self) -> None:
        """Undo `begin` if nothing was measured since, so that a corrected bisection can begin in this folder."""
        if not (self.path / "bisect.jsonl").exists() and not any(self.path.rglob("run.json")):
            (self.path / "bisect.json").unlink()

    def asked(self) -> Asked:
        """Return the request.

        Raises:
            StoreError: `bisect.json` can't be read.
        """
        path = self.path / "bisect.json"
        found = attempt(lambda: msgspec.json.decode(read_file(path, ASKED_BYTES), type=Asked))
        if isinstance(found, FileError):
            raise StoreError(str(found)) from found
        if isinstance(found, Exception):
            raise StoreError(f"{path}: not written by this version of torchzoo: {one_line(found)}") from found
        return found

    def append(self, good: str, ask: Judgement, evidence: Evidence) -> LoggedVerdict:
        """Add a verdict, which is on disk on return. A damaged last line stays, and a new line begins after it."""
        now = dt.datetime.now(dt.UTC).isoformat(timespec="milliseconds")
        kept = msgspec.structs.replace(evidence, ratio=_finite(evidence.ratio))
        entry = LoggedVerdict(good=good, **ask._asdict(), evidence=kept, finished_at=now)
        append_line(self.path / "bisect.jsonl", to_json(entry))
        return entry

    def entries(self) -> tuple[list[LoggedVerdict], str]:
        """Return the verdicts so far, and a remark on lines that can't be read (empty if there are none).

        Raises:
            StoreError: `bisect.jsonl` is no file.
        """
        path = self.path / "bisect.jsonl"
        try:
            lines = read_file(path).split(b"\n") if os.path.lexists(path) else []
        except FileError as error:
            raise StoreError(str(error)) from error
        found, damaged = [], []
        for number, line in enumerate(lines, start=1):
            if not line.strip():
                continue
            entry = attempt(lambda line=line: msgspec.json.decode(line, type=LoggedVerdict))  # type: ignore[misc]
            if isinstance(entry, LoggedVerdict):
                found.append(entry)
            else:
                damaged.append(number)
        if not damaged:
            return found, ""
        which = f"line {damaged[0]}" if len(damaged) == 1 else f"{len(damaged)} lines, the first is line {damaged[0]},"
        return found, f"{path}: {which} could not be read and will be measured again"


def _finite(ratio: Estimate | None) -> Estimate | None:
    """Return the ratio with finite ends, since JSON has no infinity."""
    if ratio is None:
        return None
    most = sys.float_info.max
    return msgspec.structs.replace(ratio, low=max(ratio.low, -most), high=min(ratio.high, most))
