"""The folder of a run.

- `run.json`: the manifest.
- `records.jsonl`: one record a line. A record is on disk before its case counts as done.
- `logs/`: what the workers printed.
- `.lock`: locked by the runner that writes here. The file stays when the runner has ended.
"""

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
    """A run's folder can't be written or read. The message is one line that says what to do."""


class Run(msgspec.Struct, frozen=True, kw_only=True):
    """A run as it was read from its folder."""

    path: Path
    manifest: Manifest
    records: tuple[Record, ...]  # the latest record of each case, in the plan's order
    damaged_lines: int = 0  # lines of `records.jsonl` that can't be read


def write_whole(path: Path, content: bytes) -> None:
    """Write a file so that no reader ever finds a part of it, even if this process is killed.

    Raises:
        OSError: it can't be written.
    """
    unfinished = path.with_name(f".{path.name}.{os.getpid()}")
    unfinished.write_bytes(content)
    unfinished.replace(path)


class RunStore:
    """Writes one run. Use it as a context manager: inside, a lock keeps other runners out of the folder.

    The lock belongs to this process. It ends with the process, however that ends, and no worker inherits it.

    Args:
        path: the run's folder.
        resume: whether the folder holds a run to go on with; if not, it must not hold one.

    Raises:
        StoreError: on entering. The folder can't be written, another runner works on it, or it holds a run where it
            should not, or none where it should.
    """

    def __init__(self, path: Path, *, resume: bool = False) -> None:
        self.path = path
        self.logs = path / "logs"
        self.resume = resume
        self.has_failures = False
        self._lock: FileLock | None = None

    def __enter__(self) -> RunStore:
        from filelock import FileLock, Timeout

        if self.resume and not (self.path / "run.json").is_file():
            raise StoreError(f"no run in {self.path}: there is no file run.json")
        lock = FileLock(self.path / ".lock")
        try:
            self.logs.mkdir(parents=True, exist_ok=True)
            lock.acquire(blocking=False)
        except Timeout as error:
            message = f"another torchzoo is at work on {self.path}: wait for it, or name another folder"
            raise StoreError(message) from error
        except OSError as error:
            message = f"can't write to {self.path}: {error.strerror or error}; name another folder with -o"
            raise StoreError(message) from error
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
        """Write the manifest."""
        write_whole(self.path / "run.json", msgspec.json.format(msgspec.json.encode(manifest), indent=1) + b"\n")

    def append(self, record: Record) -> None:
        """Add a record; it is on disk when this returns.

        Where a runner was killed while it wrote a line, the record begins a new line.
        """
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
        """The file for what the worker of case `number` of the plan prints."""
        safe = "".join(character if character.isalnum() or character in "-_." else "-" for character in label)
        return self.logs / f"{number:04d}-{safe}.log"


def read_run(path: Path) -> Run:
    """Read a run's folder. A line that can't be read, from a run that was killed while it wrote, is only counted.

    Raises:
        StoreError: there is no run, or it was written by a newer torchzoo.
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
