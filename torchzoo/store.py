"""A run's folder: `run.json`, `records.jsonl` (one line a case, on disk before the next begins), `logs/`."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

import msgspec

from torchzoo.record import SCHEMA_VERSION, Failed, Manifest, Record


class StoreError(ValueError):
    """A run's folder that can't be written or read: one line that says what to do."""


class Run(msgspec.Struct, frozen=True, kw_only=True):
    """A run as read back, its records in the plan's order. `damaged_lines` of `records.jsonl` could not be read."""

    path: Path
    manifest: Manifest
    records: tuple[Record, ...]
    damaged_lines: int = 0


class RunStore:
    """Writes one run.

    Raises:
        StoreError: the folder can't be made or written, or holds a run already.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.logs = path / "logs"
        self.has_failures = False
        if (path / "run.json").exists():
            raise StoreError(f"{path} holds a run already: name another folder with -o")
        try:
            self.logs.mkdir(parents=True, exist_ok=True)
            with tempfile.TemporaryFile(dir=path):
                pass
        except OSError as error:
            raise StoreError(f"can't write to {path}: {error.strerror}; name another folder with -o") from error

    def begin(self, manifest: Manifest) -> None:
        (self.path / "run.json").write_bytes(msgspec.json.format(msgspec.json.encode(manifest), indent=1) + b"\n")

    def append(self, record: Record) -> None:
        with (self.path / "records.jsonl").open("ab") as file:
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
    records, damaged = [], 0
    records_path = path / "records.jsonl"
    decoder = msgspec.json.Decoder(Record)
    for line in records_path.read_bytes().splitlines() if records_path.exists() else []:
        try:
            records.append(decoder.decode(line))
        except (msgspec.MsgspecError, UnicodeDecodeError):
            damaged += 1
    order = {case: number for number, case in enumerate(manifest.cases)}
    records.sort(key=lambda record: order.get(record.case, len(order)))
    return Run(path=path, manifest=manifest, records=tuple(records), damaged_lines=damaged)


class _Versioned(msgspec.Struct):
    schema_version: int
