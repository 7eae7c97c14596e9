"""Read and write the folder of a run.

- `run.json`: the manifest.
- `records.jsonl`: one record a line. A record is on disk before its case counts as done.
- `records.jsonl.gz`: earlier records, compressed with gzip, which are only read.
- `logs/`: the output of the workers.
- `.lock`: the lock of the runner that writes here. The file stays when the runner has ended.
"""

from __future__ import annotations

import gzip
import os
import zlib
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from torchzoo.errors import TorchzooError, attempt, one_line
from torchzoo.files import FileError, read_file, safe_name, to_json
from torchzoo.record import (
    DecodeError,
    Failed,
    FailureKind,
    Manifest,
    Record,
    RecordKey,
    decode_manifest,
    decode_record,
)
from torchzoo.settings import Stage

if TYPE_CHECKING:
    from filelock import FileLock

#: The most bytes of a manifest that are read. A manifest of all models with some axes has a few MiB.
MANIFEST_BYTES = 256 * 2**20

#: The files of records, in the order in which they were written: a later record of a case replaces an earlier one.
RECORDS, COMPRESSED_RECORDS = "records.jsonl", "records.jsonl.gz"
RECORD_FILES = (COMPRESSED_RECORDS, RECORDS)


class StoreError(TorchzooError):
    """A run's folder can't be written or read. The message is one line that says what to do."""


class Run(msgspec.Struct, frozen=True, kw_only=True):
    """A run as it was read from its folder."""

    path: Path
    manifest: Manifest
    records: tuple[Record, ...]  # the latest of each key, by case in the plan's order
    damaged: dict[tuple[str, int], str] = {}  # reasons why lines can't be read, by file and number
    joined: tuple[Run, ...] = ()  # the runs that this run was joined from

    @property
    def finished(self) -> tuple[Record, ...]:
        """The records of what need not run again when the run is resumed."""
        return tuple(r for r in self.records if r.failure is None or r.failure.kind is not FailureKind.INTERRUPTED)

    @property
    def is_whole(self) -> bool:
        """Whether no case need run when the run is resumed."""
        return {record.case for record in self.finished} >= set(self.manifest.cases)

    @property
    def parts(self) -> tuple[Run, ...]:
        """The runs as read from folders: the joined runs, or this run."""
        return self.joined or (self,)

    @property
    def damaged_lines(self) -> int:
        """The number of lines of records that can't be read."""
        return len(self.damaged)

    @property
    def damage(self) -> str:
        """The message on the lines that can't be read; empty if there are none."""
        if not self.damaged:
            return ""
        ((name, first), why), count = next(iter(self.damaged.items())), len(self.damaged)
        lines = f"line {first} could not be read and is" if count == 1 else f"{count} lines could not be read and are"
        where = "" if count == 1 else f"the first is line {first}, "
        return f"{self.path / name}: {lines} left out ({where}{why})"


def write_whole(path: Path, content: bytes) -> None:
    """Write a file atomically: no reader sees a part of it, even if this process is killed.

    Raises:
        OSError: the file can't be written.
    """
    unfinished = path.with_name(f".{path.name}.{os.getpid()}")
    unfinished.write_bytes(content)
    unfinished.replace(path)


def write_json(path: Path, value: Any) -> None:
    """Write a struct as indented JSON, atomically as `write_whole` does."""
    write_whole(path, msgspec.json.format(to_json(value), indent=1) + b"\n")


def lock_folder(
    folder: Path,
    *,
    subfolder: str = "",
    owner: str = "torchzoo",
    advice: str = "name another folder with -o",
) -> FileLock:
    """Lock a folder against other processes, and return the lock. The folder is made if it does not exist.

    The lock belongs to this process and ends with it. Workers do not inherit it.

    Args:
        folder: the folder. Its file `.lock` is locked, and stays.
        subfolder: a folder in it that is made, too.
        owner: the name of the program that holds the lock, for the message.
        advice: the message's advice if the folder can't be written.

    Raises:
        StoreError: the folder can't be written, or another process works there.
    """
    from filelock import FileLock, Timeout

    lock = FileLock(folder / ".lock")
    try:
        (folder / subfolder).mkdir(parents=True, exist_ok=True)
        lock.acquire(blocking=False)
    except Timeout as error:
        message = f"another {owner} is at work on {folder}: wait for it, or name another folder"
        raise StoreError(message) from error
    except OSError as error:
        raise StoreError(f"can't write to {folder}: {error.strerror or error}; {advice}") from error
    return lock


class RunStore:
    """The writer of a run, a context manager: inside, a lock keeps other runners out of the folder.

    Args:
        path: the run's folder.
        resume: whether the folder holds a run to resume; if not, it must not hold a run.

    Raises:
        StoreError: on entering, if the folder can't be written, is locked by another runner, holds a run without
            `resume`, or holds no run with it.
    """

    def __init__(self, path: Path, *, resume: bool = False) -> None:
        self.path = path
        self.logs = path / "logs"
        self.resume = resume
        self.has_failures = False
        self._lock: FileLock | None = None

    def __enter__(self) -> RunStore:
        if self.resume and not (self.path / "run.json").is_file():
            raise _no_run(self.path, "there is no file run.json")
        lock = lock_folder(self.path, subfolder=self.logs.name)
        if not self.resume and (self.path / "run.json").exists():
            lock.release()
            raise StoreError(
                f"{self.path} holds a run already: go on with --resume {self.path}, or name another folder with -o"
            )
        self._lock = lock
        return self

    def __exit__(self, *_: object) -> None:
        assert self._lock is not None
        self._lock.release()

    def begin(self, manifest: Manifest) -> None:
        """Write the manifest.

        Raises:
            StoreError: the manifest could not be read again, as with a number that does not fit 64 bits.
        """
        content = to_json(manifest)
        kept = attempt(lambda: decode_manifest(content))
        if isinstance(kept, Exception):
            raise StoreError(f"this run can't be kept: {one_line(kept)}")
        write_whole(self.path / "run.json", msgspec.json.format(content, indent=1) + b"\n")

    def append(self, record: Record) -> Record:
        """Add a record, and flush it to disk. A record that could not be read again becomes a failure.

        Returns:
            The record as later reads return it.
        """
        line, kept = _as_kept(record)
        append_line(self.path / RECORDS, line)
        self.has_failures = self.has_failures or kept.failure is not None
        return kept

    def log_path(self, number: int, label: str) -> Path:
        """The file for the output of the worker of case `number` of the plan."""
        return self.logs / f"{number:04d}-{safe_name(label)}.log"


def _as_kept(record: Record) -> tuple[bytes, Record]:
    """The line of a record, and the record as read from it."""

    def kept(record: Record) -> tuple[bytes, Record]:
        line = to_json(record)
        return line, decode_record(line)

    found = attempt(lambda: kept(record))
    if not isinstance(found, Exception):
        return found
    message = f"the result can't be kept: {one_line(found)}"
    failed = Failed(kind=FailureKind.ERROR, stage=Stage.EXAMINE, message=message)
    return kept(msgspec.structs.replace(record, outcome=failed, lane=None, paused_s=0.0, batch_curve=None))


def append_line(path: Path, line: bytes) -> None:
    """Add a line to a file, and flush it to disk. A new line is begun after an unfinished one."""
    with path.open("a+b") as file:
        if file.tell() > 0:
            file.seek(-1, os.SEEK_END)
            if file.read(1) != b"\n":
                file.write(b"\n")
        file.write(line + b"\n")
        file.flush()
        os.fsync(file.fileno())


def _no_run(path: Path, why: str) -> StoreError:
    """The error for a folder without a run. The message names runs in its subfolders, or says how to keep one."""
    inside = sorted(str(manifest.parent) for manifest in path.glob("*/run.json"))
    hint = f"there are runs in it, such as {inside[-1]}" if inside else "`torchzoo run MODEL -o DIR` keeps a run in DIR"
    return StoreError(f"no run in {path}: {why}; {hint}")


def read_run(path: Path, *, in_turns: bool = False) -> Run:
    """Read a run's folder. Lines that can't be read, as after a kill during writing, are listed in `damaged`.

    Args:
        path: the folder.
        in_turns: whether the records must be of the fresh processes of a userbenchmark, or of whole cases.

    Raises:
        StoreError: there is no run, its files can't be read, it was written by a newer torchzoo, or its records are of
            the other kind.
    """
    manifest_path = path / "run.json"
    try:
        manifest = decode_manifest(read_file(manifest_path, MANIFEST_BYTES))
        names = [name for name in RECORD_FILES if os.path.lexists(path / name)]
        lines = {(name, number): line for name in names for number, line in enumerate(_lines(path / name), start=1)}
    except FileError as error:
        raise _no_run(path, str(error)) from error
    except DecodeError as error:
        raise StoreError(f"{manifest_path} is not a run of this torchzoo: {one_line(error)}") from error
    if in_turns and not manifest.turns:
        raise StoreError(f"{path} holds no results of fresh processes: report on it with `torchzoo report {path}`")
    if manifest.turns and not in_turns:
        raise StoreError(
            f"{path} holds results of fresh processes: `torchzoo userbenchmark NAME --from {path}` reports on them, "
            f"and --resume {path} goes on"
        )
    latest: dict[RecordKey, Record] = {}
    damaged: dict[tuple[str, int], str] = {}
    for place, line in lines.items():
        if not line:  # after the last newline
            continue
        try:
            record = decode_record(line)
        except DecodeError as error:
            damaged[place] = one_line(error)
        else:
            latest[record.key] = record
    order = {case: number for number, case in enumerate(manifest.cases)}
    records = sorted(latest.values(), key=lambda record: order.get(record.case, len(order)))
    return Run(path=path, manifest=manifest, records=tuple(records), damaged=damaged)


def _lines(path: Path) -> list[bytes]:
    """The lines of a file of records.

    Raises:
        FileError: the file can't be read, or its compressed content is damaged.
    """
    content = read_file(path)
    if path.name == COMPRESSED_RECORDS:
        try:
            content = gzip.decompress(content)
        except (OSError, EOFError, zlib.error) as error:
            raise FileError(f"{path}: not whole, or not compressed with gzip ({one_line(error)})") from error
    return content.split(b"\n")
