"""An SQLite index over the folders of runs, with a few figures of each case of each run, for questions over many runs.

The index is made from the folders, and an update reads only folders that changed. Several processes may update and read
the index at once: each run is written in one transaction, and a writer waits for others. An index of another version is
emptied and made again.
"""

from __future__ import annotations

import contextlib
import os
import sqlite3
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import msgspec

from torchzoo.errors import attempt, one_line, written
from torchzoo.history.rows import Contents, forget, marks, write_cases
from torchzoo.history.schema import (
    BUSY_S,
    SCHEMA,
    DamagedIndex,
    HistoryError,
    damaged,
    is_damage,
    make_tables,
    refusal,
    version_of,
)
from torchzoo.store import RECORD_FILES, read_run

#: The name of the index in the folder of the runs.
INDEX_NAME = "history.sqlite"
#: A folder with one of these files holds an A/B or a bisection.
EXPERIMENTS = frozenset({"ab.json", "bisect.json"})


class Update(msgspec.Struct, frozen=True, kw_only=True):
    """The result of an update."""

    runs: int  # in the index now, those with problems included
    indexed: int = 0  # runs that were read: new ones, and those that changed
    removed: int = 0  # runs whose folder is gone
    problems: dict[str, str] = {}  # by folder, why it or a part of it can't be read


class Index:
    """An open index. Use `open_index`."""

    def __init__(self, path: Path, connection: sqlite3.Connection) -> None:
        self.path = path
        self.connection = connection

    def update(self, folders: Sequence[Path], *, progress: Callable[[str], None] | None = None) -> Update:
        """Read the runs below some folders that are new or changed, and drop runs whose folder is gone.

        A folder that can't be read becomes a line in the result, and does not stop the others.

        Args:
            folders: searched with all folders below, except hidden ones.
            progress: called with the path of each run before it is read.

        Raises:
            HistoryError: a folder does not exist, or the index can't be written.
        """
        with self.refusing():
            return self._update(folders, progress)

    def _update(self, folders: Sequence[Path], progress: Callable[[str], None] | None) -> Update:
        roots = [folder.resolve() for folder in folders]
        problems: dict[str, str] = {}
        found = {written(str(path)): path for root in roots for path in run_folders(root, problems)}
        known = dict(self.connection.execute("SELECT path, stamp FROM runs"))
        indexed = 0
        for name, path in found.items():
            stamp = files_stamp(path)  # before reading: later additions are read by the next update
            if known.get(name) == stamp:
                continue
            if progress is not None:
                progress(name)
            self.keep(name, stamp, attempt(lambda path=path: Contents.of(read_run(path))))  # type: ignore[misc]
            indexed += 1
        tops = [written(str(root)) for root in roots]
        gone = [name for name in known if name not in found and any(is_below(name, top) for top in tops)]
        for name in gone:
            with self.transaction() as connection:
                forget(connection, name)
                connection.execute("DELETE FROM runs WHERE path = ?", (name,))
        rows = self.connection.execute("SELECT path, problem FROM runs WHERE problem != ''")
        problems |= {name: problem for name, problem in rows if name in found}
        (runs,) = self.connection.execute("SELECT count(*) FROM runs").fetchone()
        return Update(runs=runs, indexed=indexed, removed=len(gone), problems=problems)

    def keep(self, name: str, stamp: str, contents: Contents | Exception) -> None:
        """Write one run, in one transaction.

        Args:
            name: the path of its folder.
            stamp: `files_stamp` of the folder, from before it was read.
            contents: the rows of the run, or why it can't be read.
        """
        with self.transaction() as connection:
            kept = connection.execute("SELECT stamp FROM runs WHERE path = ?", (name,)).fetchone()
            if kept == (stamp,):
                return  # another process has written it
            forget(connection, name)
            if isinstance(contents, Exception):
                row = (name, stamp, one_line(contents), *[""] * 6, "{}")
            else:
                row = (name, stamp, *contents.about)
            columns = (
                "path, stamp, problem, created_at, hardware, torch, torch_commit, torchzoo, torchzoo_commit, software"
            )
            connection.execute(f"INSERT OR REPLACE INTO runs ({columns}) VALUES ({marks(row)})", row)  # noqa: S608
            if not isinstance(contents, Exception):
                (run_id,) = connection.execute("SELECT run_id FROM runs WHERE path = ?", (name,)).fetchone()
                write_cases(connection, run_id, contents)

    @contextlib.contextmanager
    def transaction(self) -> Iterator[sqlite3.Connection]:
        """Begin a transaction that writes. Other writers wait until it ends."""
        self.connection.execute("BEGIN IMMEDIATE")
        is_whole = False
        try:
            yield self.connection
            is_whole = True
        finally:
            if self.connection.in_transaction:  # after some errors, SQLite has ended it
                self.connection.execute("COMMIT" if is_whole else "ROLLBACK")

    @contextlib.contextmanager
    def refusing(self) -> Iterator[None]:
        """Turn SQLite's errors into a `HistoryError` that says what to do."""
        try:
            yield
        except sqlite3.Error as error:
            raise refusal(self.path, error) from error


@contextlib.contextmanager
def open_index(path: Path, *, rebuild: bool = False) -> Iterator[Index]:
    """Open the index at `path`; make it if there is none, or if it is of an older version.

    Args:
        path: of the file.
        rebuild: empty the index, and also delete the file itself if it is damaged. A file that is no index at all is
            deleted only if it has the index's own name.

    Raises:
        DamagedIndex: the file is damaged, or no index.
        HistoryError: the index was written by a newer torchzoo, or can't be written.
    """
    try:
        version = version_of(path)
    except DamagedIndex:
        if not (rebuild and path.name == INDEX_NAME):
            raise
        _delete(path)
        version = None
    if version is not None and version > SCHEMA and not rebuild:
        raise HistoryError(
            f"{path} was written by a newer torchzoo (schema {version}): update torchzoo, or name another with --index"
        )
    try:
        index = _ready(path, rebuild=rebuild)
    except sqlite3.DatabaseError as error:
        if not (rebuild and is_damage(error)):
            raise refusal(path, error) from error
        _delete(path)
        index = _ready(path, rebuild=True)
    with contextlib.closing(index.connection):
        yield index


def check_index(path: Path) -> None:
    """Check whether the index at `path` can be used; there may be none. The whole file is read.

    Raises:
        DamagedIndex, HistoryError: as `open_index`.
    """
    if not path.exists():
        return
    with open_index(path) as index, index.refusing():
        ((answer,),) = index.connection.execute("PRAGMA quick_check(1)").fetchall()
        if answer != "ok":
            raise damaged(path, answer)


def _delete(path: Path) -> None:
    try:
        for suffix in ("", "-wal", "-shm"):
            path.with_name(path.name + suffix).unlink(missing_ok=True)
    except OSError as error:
        raise HistoryError(f"can't remove the damaged index {path}: {error.strerror}; remove it") from error


def _ready(path: Path, *, rebuild: bool) -> Index:
    """Return the open index with the tables of this version, which are empty if `rebuild` is set."""
    with contextlib.ExitStack() as if_it_fails:
        index = _connected(path)
        if_it_fails.callback(index.connection.close)

        def is_current() -> bool:
            return bool(index.connection.execute("PRAGMA user_version").fetchone() == (SCHEMA,))

        if rebuild or not is_current():
            with index.transaction() as connection:
                if rebuild or not is_current():  # another process may have made the tables
                    make_tables(connection)
        if_it_fails.pop_all()
    return index


def _connected(path: Path) -> Index:
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise HistoryError(f"can't make the folder {path.parent}: {error.strerror}; name another --index") from error
    connection = sqlite3.connect(path, timeout=BUSY_S, isolation_level=None)
    _use_wal(connection)
    connection.execute("PRAGMA synchronous = NORMAL")
    return Index(path, connection)


def _use_wal(connection: sqlite3.Connection) -> None:
    """Let one process write while others read.

    While another process makes the same new file, SQLite refuses this statement at once, and waits only with others.
    """
    until = time.monotonic() + BUSY_S
    while True:
        try:
            connection.execute("PRAGMA journal_mode = WAL")
        except sqlite3.OperationalError as error:
            if error.sqlite_errorcode & 0xFF != sqlite3.SQLITE_BUSY or time.monotonic() > until:
                raise
            time.sleep(0.01)
        else:
            return


# --- folders ---


def run_folders(root: Path, problems: dict[str, str]) -> Iterator[Path]:
    """Yield the folders of runs at or below `root`, in the order of their names.

    Hidden folders are left out, and so are A/Bs and bisections below `root`: their runs measure other software.

    Args:
        root: where to begin.
        problems: gets a line for each folder that can't be listed.

    Raises:
        HistoryError: there is no such folder.
    """
    if not root.is_dir():
        raise HistoryError(f"no folder {root}: name the folder that holds your runs")

    def note(error: OSError) -> None:
        problems[written(str(error.filename))] = error.strerror or str(error)

    for folder, below, files in os.walk(root, onerror=note):
        if "run.json" in files:
            below.clear()
            yield Path(folder)
        elif folder != str(root) and not EXPERIMENTS.isdisjoint(files):
            below.clear()
        below[:] = sorted(name for name in below if not name.startswith("."))


def files_stamp(path: Path) -> str:
    """Return the sizes and times of the files of a run, which change when the run does."""
    parts = []
    for name in (*RECORD_FILES, "run.json"):
        try:
            about = (path / name).stat()
            parts.append(f"{about.st_size}:{about.st_mtime_ns}")
        except OSError:
            parts.append("none")
    return " ".join(parts)


def is_below(name: str, top: str) -> bool:
    """Whether a run is in a folder, at any depth. Both are absolute paths as the index writes them."""
    return name == top or name.startswith(top.rstrip(os.sep) + os.sep)
