"""A run's folder: `run.json`, `records.jsonl` (one line a case, on disk before the next begins), `logs/`, a lock."""

from __future__ import annotations

import fcntl
import os
from pathlib import Path

import msgspec

from torchzoo.record import SCHEMA_VERSION, Case, Failed, Manifest, Record


class StoreError(ValueError):
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
    """Writes one run, alone: a lock keeps other runners off its folder until this one has ended, however it ends.

    Raises:
        StoreError: the folder can't be made or written, another runner is at work on it, or it holds a run already.
    """

    def __init__(self, path: Path, *, resume: bool = False) -> None:
        self.path = path
        self.logs = path / "logs"
        self.has_failures = False
        try:
            if not resume:
                self.logs.mkdir(parents=True, exist_ok=True)
            self._lock = (path / ".lock").open("a")
        except OSError as error:
            raise StoreError(f"can't write to {path}: {error.strerror}; name another folder with -o") from error
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            self._lock.close()
            raise StoreError(f"another torchzoo is at work on {path}: wait for it, or name another folder") from error
        if not resume and (path / "run.json").exists():
            raise StoreError(f"{path} holds a run already: go on with --resume {path}, or name another folder with -o")

    def begin(self, manifest: Manifest) -> None:
        """Write the manifest, whole or not at all."""
        write_whole(self.path / "run.json", msgspec.json.format(msgspec.json.encode(manifest), indent=1) + b"\n")

    def close(self) -> None:
        """Let other runners at the folder."""
        self._lock.close()

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
