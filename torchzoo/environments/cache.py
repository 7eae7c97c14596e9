"""The folder of made environments: its layout, its locks, what is in it, and how it becomes smaller.

KEY/environment.json    written last, in one step: without it, the environment does not exist
KEY/venv-1a2b3c4d/      the environment that environment.json names; any other is what a killed builder left
KEY/install.log         what uv printed
KEY/used                its time of change is when the environment was last used
code/HASH/torchzoo      a link to torchzoo's package, where it runs from a wheel
locks/KEY.lock          is held by the process that makes or deletes KEY
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import re
import shutil
import time
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

import torchzoo
from torchzoo.errors import TorchzooError, UsageError, attempt
from torchzoo.files import read_file
from torchzoo.report import terminal
from torchzoo.zoo.folders import checkout

if TYPE_CHECKING:
    from filelock import FileLock

KEY_LETTERS = 16  # hexadecimal: of a hash


class CacheError(TorchzooError):
    """The folder of environments can't be used."""


class MadeEnvironment(msgspec.Struct, frozen=True, kw_only=True):
    """An environment that was made: the content of environment.json."""

    key: str
    spec: str  # the SPEC that it was made for
    python: str  # absolute
    python_version: str
    platform: str
    made_s: float  # Unix time
    took_s: float
    asked: tuple[str, ...]  # what uv was asked for
    constraints: tuple[str, ...]  # `name==version` that held
    free: tuple[str, ...]  # packages of the first environment that were resolved anew
    is_relaxed: bool  # whether more of them had to be resolved anew than what SPEC changes and what belongs to it
    packages: dict[str, str]  # all that is installed, with versions


class CachedFolder(msgspec.Struct, frozen=True, kw_only=True):
    """A folder of the cache."""

    key: str
    size_bytes: int  # on disk; a file with several links counts once
    used_s: float  # Unix time of the last use
    is_locked: bool  # it is being made or deleted
    made: MadeEnvironment | None  # None: half-made, or failed


def cache_folder() -> Path:
    """Return where environments are kept: `TORCHZOO_ENV_CACHE`, else `~/.cache/torchzoo/environments`."""
    chosen = os.environ.get("TORCHZOO_ENV_CACHE")
    return Path(chosen).expanduser().absolute() if chosen else Path.home() / ".cache" / "torchzoo" / "environments"


def read_made(cache: Path, key: str) -> MadeEnvironment | None:
    """Return the environment of this key, or None if it was never finished or its Python is gone."""
    path = cache / key / "environment.json"
    made = attempt(lambda: msgspec.json.decode(read_file(path), type=MadeEnvironment))
    return None if isinstance(made, Exception) or not Path(made.python).exists() else made


def code_folder(cache: Path) -> Path:
    """Return a folder from which another Python imports this torchzoo and nothing else."""
    root = checkout()
    if root is not None:
        return root
    package = Path(torchzoo.__file__).resolve().parent
    folder = cache / "code" / hashlib.sha256(str(package).encode()).hexdigest()[:KEY_LETTERS]
    folder.mkdir(parents=True, exist_ok=True)
    with contextlib.suppress(FileExistsError):
        (folder / "torchzoo").symlink_to(package)
    return folder


@contextlib.contextmanager
def locked(cache: Path, key: str) -> Iterator[None]:
    """Keep all other processes from making or deleting this environment. Waits until none does.

    Raises:
        CacheError: the folder can't be written.
    """
    from filelock import Timeout

    lock = _lock(cache, key)
    try:
        try:
            lock.acquire(blocking=False)
        except Timeout:
            terminal.say(f"torchzoo: another torchzoo makes or deletes the environment {key}: waiting for it")
            lock.acquire()
    except OSError as error:
        raise CacheError(_cannot_write(cache, error)) from error
    try:
        yield
    finally:
        lock.release()


def touch_used(cache: Path, key: str) -> None:
    """Note that an environment was used just now. A cache that can only be read is used all the same."""
    with contextlib.suppress(OSError):
        (cache / key / "used").touch()


def _lock(cache: Path, key: str) -> FileLock:
    from filelock import FileLock

    folder = cache / "locks"
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise CacheError(_cannot_write(cache, error)) from error
    return FileLock(folder / f"{key}.lock")


def _cannot_write(cache: Path, error: OSError) -> str:
    return f"can't write to {cache}: {error.strerror or error}; name another folder in TORCHZOO_ENV_CACHE"


def entries(cache: Path) -> list[CachedFolder]:
    """Return all environments, made or half-made, the latest used first."""
    found = []
    for key in _keys(cache):
        made = read_made(cache, key)
        used_s = _changed_s(cache / key / "used") or (made.made_s if made else _changed_s(cache / key))
        size_bytes = disk_bytes(cache / key)
        is_locked = _is_locked(cache, key)
        found.append(CachedFolder(key=key, size_bytes=size_bytes, used_s=used_s, is_locked=is_locked, made=made))
    return sorted(found, key=lambda entry: -entry.used_s)


def _keys(cache: Path) -> list[str]:
    names = [path.name for path in cache.iterdir() if path.is_dir()] if cache.is_dir() else []
    return sorted(name for name in names if re.fullmatch(f"[0-9a-f]{{{KEY_LETTERS}}}", name))


def _changed_s(path: Path) -> float:
    try:
        return path.stat().st_mtime
    except OSError:
        return 0.0


def _is_locked(cache: Path, key: str) -> bool:
    from filelock import Timeout

    try:
        with _lock(cache, key).acquire(blocking=False):
            return False
    except Timeout:
        return True


def chosen(cache: Path, keys: Sequence[str]) -> list[str]:
    """Return the keys that begin with these words.

    Raises:
        UsageError: a word is the beginning of none, or of several.
    """
    found = []
    for word in keys:
        same = [key for key in _keys(cache) if word and key.startswith(word)]
        if len(same) != 1:
            what = f"the beginning of {len(same)} keys" if same else "no key"
            raise UsageError(f"'{word}' is {what} in {cache}: see `torchzoo env list`")
        found += same
    return found


def prune(cache: Path, keys: Iterable[str]) -> tuple[list[str], int]:
    """Delete these environments, and what killed builders left, unless a process is building there.

    Returns:
        The keys that were deleted, and the bytes that were on disk.

    Raises:
        CacheError: the folder can't be written.
    """
    from filelock import Timeout

    doomed, deleted, size_bytes = set(keys), list[str](), 0
    for key in _keys(cache):
        try:
            with _lock(cache, key).acquire(blocking=False):
                paths = list(_leftovers(cache, key))
                if key in doomed or read_made(cache, key) is None:
                    paths = [cache / key]
                    deleted.append(key)
                size_bytes += sum(map(disk_bytes, paths))
                for path in paths:
                    delete(path)
        except Timeout:
            if key in doomed:
                terminal.say(f"torchzoo: {key} is being made: not deleted")
    return deleted, size_bytes


def _leftovers(cache: Path, key: str) -> Iterator[Path]:
    made = read_made(cache, key)
    current = Path(made.python).parent.parent.name if made else None
    yield from (path for path in (cache / key).glob("venv-*") if path.name != current)
    yield from (cache / key).glob(".environment.json.*")


def remove_leftovers(cache: Path, key: str) -> None:
    """Delete what killed builders left. The caller holds the lock."""
    for path in list(_leftovers(cache, key)):
        delete(path)


def delete(path: Path) -> None:
    """Delete a file or a folder. An environment is unfinished before the first of its files is gone.

    Raises:
        CacheError: something is still there.
    """
    if path.is_dir():
        (path / "environment.json").unlink(missing_ok=True)
        for _ in range(3):  # an installer whose runner was killed may still write into it
            shutil.rmtree(path, ignore_errors=True)
            if not path.exists():
                return
            time.sleep(0.1)
        raise CacheError(f"can't delete all of {path}: look who uses it, and delete it")
    path.unlink(missing_ok=True)


def disk_bytes(path: Path) -> int:
    """Return the bytes that a file or a folder takes on disk. A file with several links in it counts once."""
    sizes: dict[tuple[int, int], int] = {}
    waiting = [str(path)]
    while waiting:
        with contextlib.suppress(OSError):  # it was deleted just now
            name = waiting.pop()
            stat = os.lstat(name)
            sizes[stat.st_dev, stat.st_ino] = stat.st_blocks * 512
            if os.path.isdir(name) and not os.path.islink(name):  # noqa: PTH112, PTH114  fast for 100,000 files
                waiting += [entry.path for entry in os.scandir(name)]
    return sum(sizes.values())
