"""A run's folder: `run.json`, `records.jsonl` (one line a case, on disk before the next begins), `logs/`, a lock."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from torchzoo.case import Case
from torchzoo.errors import TorchzooError
from torchzoo.record import SCHEMA_VERSION, Failed, Manifest, Record

if TYPE_CHECKING:
    from filelock import FileLock


class StoreError(TorchzooError):
    """A run's folder that can't be written or read: one line that says what to do."""


class Run(msgspec.Struct, frozen=True, kw_only=True):
    """A run as read back: of each case its latest record, in the plan's order.

    `damaged_lines` of `records.jsonl` could not be read.
    """

    path: Path
    manifest: Manifest
    records: tuple[Record, ...]
    damaged_lines: int = 0


def write_whole(path: Path, content: bytes) -> None:
    """Write a file so that nobody finds a part of it, whatever happens meanwhile.

    Raises:
        OSError: it can't be written.
    """
    unfinished = path.with_name(f".{path.name}.{os.getpid()}")
    unfinished.write_bytes(content)
    unfinished.replace(path)


class RunStore:
    """Writes one run. Use it as a context manager: inside, a lock keeps other runners off the folder.

    Args:
        path: the run's folder.
        resume: whether the folder holds a run that goes on, or must be new.

    Raises:
        StoreError: on entering, if the folder can't be made or written, another runner works on it, or it already
            holds a run.
    """

    def __init__(self, path: Path, *, resume: bool = False) -> None:
        self.path = path
        self.logs = path / "logs"
        self.resume = resume
        self.has_failures = False
        self._lock: FileLock | None = None

    def __enter__(self) -> RunStore:
        from filelock import FileLock, Timeout

        try:
            if not self.resume:
                self.logs.mkdir(parents=True, exist_ok=True)
            elif not self.path.is_dir():
                raise StoreError(f"no run in {self.path}: no such folder")
            self._lock = FileLock(self.path / ".lock")
            self._lock.acquire(blocking=False)
        except Timeout as error:
            raise StoreError(
                f"another torchzoo is at work on {self.path}: wait for it, or name another folder"
            ) from error
        except OSError as error:
            raise StoreError(f"can't write to {self.path}: {error.strerror}; name another folder with -o") from error
        if not self.resume and (self.path / "run.json").exists():
            self._lock.release()
            raise StoreError(
                f"{self.path} holds a run already: go on with --resume {self.path}, or name another folder with -o"
            )
        return self

    def __exit__(self, *_: object) -> None:
        assert self._lock is not None
        self._lock.release()

    def begin(self, manifest: Manifest) -> None:
        """Write the manifest, whole or not at all."""
        write_whole(self.path / "run.json", msgspec.json.format(msgspec.json.encode(manifest), indent=1) + b"\n")

    def append(self, record: Record) -> None:
        """Write a record to disk. A line that an earlier runner, killed, left unfinished stays apart."""
        with (self.path / "records.jsonl").open("a+b") as file:
            if file.tell() > 0:
                file.seek(-1, os.SEEK_END)
                if file.read(1) != b"\n":
                    file.write(b"\n")
            file.write(msgspec.json.encode(record) + b"\n")
            file.flush()
            os.fsync(file.fileno())
        self.has_failures = self.has_failures or isinstance(record.outcome, Failed)

    def log_path(self, number: int, label: str) -> Path:
        """Where the worker of the plan's case `number` writes what it prints."""
        safe = "".join(character if character.isalnum() or character in "-_." else "-" for character in label)
        return self.logs / f"{number:04d}-{safe}.log"


def read_run(path: Path) -> Run:
    """Read a run's folder; a line that can't be read (a run killed while writing) is counted, not fatal.

    Raises:
        StoreError: no run there, or one of a newer schema.
    """
    manifest_path = path / "run.json"
    try:
        version = msgspec.json.decode(manifest_path.read_bytes(), type=_Versioned).schema_version
        if version > SCHEMA_VERSION:
            raise StoreError(f"{path} was written by a newer torchzoo (schema {version}): update torchzoo to read it")
        manifest = msgspec.json.decode(manifest_path.read_bytes(), type=Manifest)
    except OSError as error:
        raise StoreError(f"no run in {path}: {error.strerror} ({manifest_path.name})") from error
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise StoreError(f"{manifest_path} is not a torchzoo run: {error}") from error
    latest: dict[Case, Record] = {}
    damaged = 0
    records_path = path / "records.jsonl"
    decoder = msgspec.json.Decoder(Record)
    for line in records_path.read_bytes().splitlines() if records_path.exists() else []:
        try:
            record = decoder.decode(line)
        except (msgspec.MsgspecError, UnicodeDecodeError):
            damaged += 1
        else:
            latest[record.case] = record
    order = {case: number for number, case in enumerate(manifest.cases)}
    records = sorted(latest.values(), key=lambda record: order.get(record.case, len(order)))
    return Run(path=path, manifest=manifest, records=tuple(records), damaged_lines=damaged)


class _Versioned(msgspec.Struct):
    schema_version: int
