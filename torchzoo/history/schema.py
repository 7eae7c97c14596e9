"""Define the tables of the index, and check whether a file is an index that can be used."""

from __future__ import annotations

import sqlite3
import struct
from pathlib import Path

from torchzoo.case import AXES
from torchzoo.errors import TorchzooError, one_line

SCHEMA = 6
#: The columns of `cases`: the model, all axes, and the kind of machine. An integer of 0 stands for a value not known.
CASE_COLUMNS = ("model", *(axis.name for axis in AXES), "machine")
_WHOLE = {axis.name for axis in AXES if axis.kind is int}
APPLICATION_ID = 0x747A6869  # in the file's header, so that no other database is taken for an index
BUSY_S = 60.0  # how long a process waits while another one writes

_TABLES = """
CREATE TABLE runs (
    run_id INTEGER PRIMARY KEY,
    path TEXT NOT NULL UNIQUE,
    stamp TEXT NOT NULL,  -- sizes and times of its files when it was read
    problem TEXT NOT NULL,  -- why it can't be read, or what of it can't, or ''
    created_at TEXT NOT NULL,  -- UTC, ISO 8601
    hardware TEXT NOT NULL,  -- the whole machine
    torch TEXT NOT NULL, torch_commit TEXT NOT NULL, torchzoo TEXT NOT NULL, torchzoo_commit TEXT NOT NULL,
    software TEXT NOT NULL  -- JSON: all facts by name
);
CREATE TABLE cases (  -- a case on a kind of machine
    case_id INTEGER PRIMARY KEY,
    {columns},
    UNIQUE ({keys})
);
CREATE TABLE results (
    run_id INTEGER NOT NULL, case_id INTEGER NOT NULL,
    status TEXT NOT NULL,
    reason TEXT NOT NULL,
    PRIMARY KEY (run_id, case_id)
) WITHOUT ROWID;
CREATE INDEX results_by_case ON results (case_id);
CREATE TABLE series (
    series_id INTEGER PRIMARY KEY,
    case_id INTEGER NOT NULL, metric TEXT NOT NULL, basis TEXT NOT NULL,
    UNIQUE (case_id, metric, basis)
);
CREATE TABLE figures (
    run_id INTEGER NOT NULL, series_id INTEGER NOT NULL,
    value REAL NOT NULL, low REAL NOT NULL, high REAL NOT NULL, confidence REAL NOT NULL,  -- seconds or bytes
    processes BLOB NOT NULL,  -- doubles: the median of each process
    log_error REAL,
    is_device_bound INTEGER NOT NULL,
    host_loop_s REAL,
    always_shared INTEGER NOT NULL,
    eager_s REAL,
    PRIMARY KEY (run_id, series_id)
) WITHOUT ROWID;
CREATE INDEX figures_by_series ON figures (series_id);
"""


class HistoryError(TorchzooError):
    """The index can't be used, or has no answer. The message is one line that says what to do."""


class DamagedIndex(HistoryError):
    """The file of the index is damaged, or no index."""


def version_of(path: Path) -> int | None:
    """Return the version of the index at `path`, from the header of the file; None without a file, or for an empty one.

    Raises:
        DamagedIndex: the file is no index of torchzoo.
        HistoryError: the file can't be read.
    """
    try:
        with path.open("rb") as file:
            header = file.read(100)
    except FileNotFoundError:
        return None
    except OSError as error:
        raise HistoryError(f"can't read the index {path}: {error.strerror}; name another with --index") from error
    if not header:
        return None
    is_index = len(header) == 100 and header.startswith(b"SQLite format 3\0")
    if is_index:
        version, application = struct.unpack(">I4xI", header[60:72])
        if application in (APPLICATION_ID, 0) and (application or not version):
            return int(version)
    raise DamagedIndex(
        f"{path} is no index of torchzoo, or it is damaged: remove it (the runs hold all), or name another with --index"
    )


def make_tables(connection: sqlite3.Connection) -> None:
    """Drop all tables and make new ones, within a transaction."""
    for kind in ("index", "table"):
        query = "SELECT name FROM sqlite_master WHERE type = ? AND sql IS NOT NULL AND name NOT LIKE 'sqlite_%'"
        for (name,) in connection.execute(query, (kind,)).fetchall():
            connection.execute(f'DROP {kind} "{name}"')
    columns = ", ".join(f"{name} {'INTEGER' if name in _WHOLE else 'TEXT'} NOT NULL" for name in CASE_COLUMNS)
    for statement in _TABLES.format(columns=columns, keys=", ".join(CASE_COLUMNS)).split(";"):
        connection.execute(statement)
    connection.execute(f"PRAGMA application_id = {APPLICATION_ID}")
    connection.execute(f"PRAGMA user_version = {SCHEMA}")


def is_damage(error: sqlite3.Error) -> bool:
    """Whether the file is damaged, and not only busy or forbidden."""
    codes = (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB)
    code = getattr(error, "sqlite_errorcode", None)
    missing = "no such table" in str(error) or "no such column" in str(error)
    return missing or (code is not None and code & 0xFF in codes)


def damaged(path: Path, why: str) -> DamagedIndex:
    """Return an error that names the damage and the remedy, in one line."""
    return DamagedIndex(f"the index {path} is damaged ({why}): run `torchzoo history index DIR --rebuild`")


def refusal(path: Path, error: sqlite3.Error) -> HistoryError:
    """Return an error that names the problem with the index and the remedy, in one line."""
    if is_damage(error):
        return damaged(path, one_line(error))
    if "locked" in str(error):
        why = f"another process has been writing to the index {path} for {BUSY_S:.0f} s"
        return HistoryError(f"{why}: try again when it has ended")
    return HistoryError(f"can't use the index {path} ({one_line(error)}): name another place with --index FILE")
