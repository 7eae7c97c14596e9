"""What fresh processes found, and the folder that keeps it: for questions that one process can't answer.

- `trials.json`: the manifest. (It is not called `run.json`: `torchzoo run --resume` must not take it for a run.)
- `trials.jsonl`: a line for each process.
- `logs/`: what the processes printed.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from torchzoo.case import Case, Domain
from torchzoo.errors import one_line
from torchzoo.files import FileError, read_file, safe_name, to_json
from torchzoo.machine.differences import why_not_together
from torchzoo.measure.trial_records import TrialRecord, Turn
from torchzoo.record import DecodeError, Manifest, decode_manifest
from torchzoo.store import MANIFEST_BYTES, StoreError, append_line, lock_folder, write_whole

if TYPE_CHECKING:
    from filelock import FileLock

MANIFEST, RECORDS = "trials.json", "trials.jsonl"


class Trials(msgspec.Struct, frozen=True, kw_only=True):
    """The folder of a userbenchmark with fresh processes, as it was read."""

    path: Path
    manifest: Manifest
    records: tuple[TrialRecord, ...]  # the latest of each turn
    damaged_lines: int = 0
    joined: tuple[Trials, ...] = ()  # the folders that this was put together from

    @property
    def parts(self) -> tuple[Trials, ...]:
        """The folders as they were read: those that were joined, or this one."""
        return self.joined or (self,)

    def by_case(self) -> dict[Case, list[TrialRecord]]:
        """The records of each case, in the order of the plan."""
        found: dict[Case, list[TrialRecord]] = {case: [] for case in self.manifest.cases}
        for record in self.records:
            found.setdefault(record.case, []).append(record)
        return {case: records for case, records in found.items() if records}


class TrialStore:
    """Writes one such folder. Use it as a context manager: inside, a lock keeps other runners out.

    Raises:
        StoreError: on entering. The folder can't be written, another runner works on it, it holds trials where it
            should not, or none where it should.
    """

    def __init__(self, path: Path, *, resume: bool = False) -> None:
        self.path = path
        self.resume = resume
        self._lock: FileLock | None = None

    def __enter__(self) -> TrialStore:
        if self.resume and not (self.path / MANIFEST).is_file():
            raise _no_trials(self.path)
        lock = lock_folder(self.path, subfolder="logs")
        taken = [name for name in (MANIFEST, "run.json") if (self.path / name).exists()]
        if not self.resume and taken:
            lock.release()
            raise StoreError(f"{self.path} holds a {taken[0]} already: name another folder with -o, or use --resume")
        self._lock = lock
        return self

    def __exit__(self, *_: object) -> None:
        assert self._lock is not None
        self._lock.release()

    def begin(self, manifest: Manifest) -> None:
        """Write the manifest."""
        write_whole(self.path / MANIFEST, msgspec.json.format(to_json(manifest), indent=1) + b"\n")

    def append(self, record: TrialRecord) -> None:
        """Add a record; it is on disk when this returns."""
        append_line(self.path / RECORDS, to_json(record))

    def log_path(self, case: Case, turn: Turn) -> Path:
        """The file for what the process of a turn prints."""
        return self.path / "logs" / f"{safe_name(f'{case.label()} {turn.variant} {turn.number}')}.log"


def _no_trials(path: Path) -> StoreError:
    return StoreError(f"{path} holds no {MANIFEST}: it was not made by a userbenchmark that starts fresh processes")


def read_trials(path: Path) -> Trials:
    """Read such a folder. Lines that can't be read are counted.

    Raises:
        StoreError: there is none, or it was written by a newer torchzoo.
    """
    if not (path / MANIFEST).is_file():
        raise _no_trials(path)
    try:
        manifest = decode_manifest(read_file(path / MANIFEST, MANIFEST_BYTES))
        lines = read_file(path / RECORDS).splitlines() if (path / RECORDS).exists() else []
    except (FileError, DecodeError) as error:
        raise StoreError(f"can't read {path}: {one_line(error)}") from error
    latest: dict[tuple[Case, str, int], TrialRecord] = {}
    damaged = 0
    for line in filter(None, lines):
        try:
            record = msgspec.json.decode(line, type=TrialRecord)
        except msgspec.MsgspecError:
            damaged += 1
        else:
            latest[record.case, record.variant, record.number] = record
    return Trials(path=path, manifest=manifest, records=tuple(latest.values()), damaged_lines=damaged)


def read_joined_trials(paths: Sequence[Path]) -> Trials:
    """Read folders that were measured on like machines as one. Where several have a case, the one named last counts.

    Raises:
        StoreError: one of them can't be read, or the machines or their software are not alike.
    """
    parts = tuple(read_trials(path) for path in dict.fromkeys(paths))
    first = parts[0]
    for part in parts[1:]:
        if why := why_not_together(first.manifest, part.manifest):
            raise StoreError(f"{first.path} and {part.path} can't stand in one report: {why}. Report each alone")
    found = {case: records for part in parts for case, records in part.by_case().items()}
    cases: dict[Case, None] = {}
    domains: dict[str, Domain] = {}
    for part in parts:
        cases |= dict.fromkeys(part.manifest.cases)
        domains |= part.manifest.domains
    return Trials(
        path=first.path,
        manifest=msgspec.structs.replace(first.manifest, cases=tuple(cases), domains=domains),
        records=tuple(record for records in found.values() for record in records),
        damaged_lines=sum(part.damaged_lines for part in parts),
        joined=parts if len(parts) > 1 else (),
    )
