"""The folder of made environments: its layout, its locks, what is in it, and how it becomes smaller.

    KEY/environment.json    written last, in one step: without it, the environment does not exist
    KEY/venv-1a2b3c4d/      the environment that environment.json names; any other is what a killed builder left
    KEY/install.log         what the installer printed
    KEY/used                its time of change is when the environment was last used
    code/HASH/              copies of torchzoo, where it runs from a wheel
    locks/                  KEY.lock is held by who makes or deletes KEY; KEY.*.use by who uses it

The folder of a builder has a name of its own, so that an installer whose runner was killed writes into no other.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import re
import shutil
import time
import uuid
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
    """The folder of environments can't be used, or an environment in it is gone."""


class Made(msgspec.Struct, frozen=True, kw_only=True):
    """An environment that was made: the content of environment.json."""

    key: str
    spec: str  # the SPEC that it was made for
    python: str  # absolute
    python_version: str
    platform: str
    installer: str  # uv or pip
    made_s: float  # Unix time
    took_s: float
    asked: tuple[str, ...]  # what the installer was asked for
    constraints: tuple[str, ...]  # `name==version` that held
    free: tuple[str, ...]  # packages of the first environment that were resolved anew
    is_relaxed: bool  # whether more of them had to be resolved anew than what SPEC changes and what belongs to it
    packages: dict[str, str]  # all that is installed, with versions


class CachedFolder(msgspec.Struct, frozen=True, kw_only=True):
    """A folder of the cache."""

    key: str
    size_bytes: int  # on disk; a file with several links counts once
    used_s: float  # Unix time of the last use
    is_in_use: bool
    made: Made | None  # None: half-made, or failed


class Pruned(msgspec.Struct, frozen=True, kw_only=True):
    """What was deleted."""

    deleted: tuple[str, ...]  # keys
    in_use: tuple[str, ...]  # keys that should have been deleted
    size_bytes: int  # of what was deleted
    freed_bytes: int  # without the files that have links elsewhere, such as in uv's own cache


def cache_folder() -> Path:
    """Where environments are kept: `TORCHZOO_ENV_CACHE`, else `~/.cache/torchzoo/environments`."""
    chosen = os.environ.get("TORCHZOO_ENV_CACHE")
    return Path(chosen).expanduser().absolute() if chosen else Path.home() / ".cache" / "torchzoo" / "environments"


def read_made(cache: Path, key: str) -> Made | None:
    """The environment of this key; None if it was never finished, or its Python is gone."""
    path = cache / key / "environment.json"
    made = attempt(lambda: msgspec.json.decode(read_file(path), type=Made))
    return None if isinstance(made, Exception) or not Path(made.python).exists() else made


def code_folder(cache: Path) -> Path:
    """The folder that gives another Python this torchzoo, and nothing else: the checkout, or a copy of the package."""
    root = checkout()
    if root is not None:
        return root
    package = Path(torchzoo.__file__).resolve().parent
    code = hashlib.sha256()
    for path in sorted(path for path in package.rglob("*") if path.is_file() and path.suffix != ".pyc"):
        code.update(f"{path.relative_to(package)}\0{path.stat().st_size}\0".encode())
        code.update(path.read_bytes())
    copy = cache / "code" / code.hexdigest()[:KEY_LETTERS]
    if not copy.is_dir():
        unfinished = copy.with_name(f".{copy.name}-{uuid.uuid4().hex[:8]}")
        shutil.copytree(package, unfinished / "torchzoo", ignore=shutil.ignore_patterns("__pycache__"))
        try:
            unfinished.rename(copy)
        except OSError:  # another process was faster
            shutil.rmtree(unfinished)
    return copy


@contextlib.contextmanager
def locked(cache: Path, key: str) -> Iterator[None]:
    """Keep all others from making or deleting this environment. Waits until none does.

    Raises:
        CacheError: the folder can't be written.
    """
    from filelock import Timeout

    lock = _lock(cache, f"{key}.lock")
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


@contextlib.contextmanager
def in_use(cache: Path, key: str) -> Iterator[None]:
    """Keep an environment from being deleted.

    Raises:
        CacheError: it is gone already, or the folder can't be written.
    """
    with locked(cache, key):
        if read_made(cache, key) is None:
            raise CacheError(f"the environment {key} was deleted from {cache}: make it again")
        lock = _lock(cache, f"{key}.{os.getpid()}-{uuid.uuid4().hex[:8]}.use")
        lock.acquire()
        touch_used(cache, key)
    try:
        yield
    finally:
        touch_used(cache, key)
        lock.release()
        Path(lock.lock_file).unlink(missing_ok=True)


def touch_used(cache: Path, key: str) -> None:
    """Note that an environment was used just now. A cache that can be read only is used all the same."""
    with contextlib.suppress(OSError):
        (cache / key / "used").touch()


def _lock(cache: Path, name: str) -> FileLock:
    from filelock import FileLock

    folder = cache / "locks"
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise CacheError(_cannot_write(cache, error)) from error
    return FileLock(folder / name)


def _cannot_write(cache: Path, error: OSError) -> str:
    return f"can't write to {cache}: {error.strerror or error}; name another folder in TORCHZOO_ENV_CACHE"


def entries(cache: Path) -> list[CachedFolder]:
    """All environments, made or half-made, the latest used first."""
    found = []
    for key in _keys(cache):
        made = read_made(cache, key)
        used_s = _changed_s(cache / key / "used") or (made.made_s if made else _changed_s(cache / key))
        size_bytes = disk_bytes([cache / key])
        is_in_use = bool(_users(cache, key)) or _is_locked(cache, f"{key}.lock")
        found.append(CachedFolder(key=key, size_bytes=size_bytes, used_s=used_s, is_in_use=is_in_use, made=made))
    return sorted(found, key=lambda entry: -entry.used_s)


def made_venvs(cache: Path) -> list[Path]:
    """The folders of all environments that are complete."""
    return [Path(made.python).parent.parent for key in _keys(cache) if (made := read_made(cache, key)) is not None]


def _keys(cache: Path) -> list[str]:
    names = [path.name for path in cache.iterdir() if path.is_dir()] if cache.is_dir() else []
    return sorted(name for name in names if re.fullmatch(f"[0-9a-f]{{{KEY_LETTERS}}}", name))


def _changed_s(path: Path) -> float:
    try:
        return path.stat().st_mtime
    except OSError:
        return 0.0


def _users(cache: Path, key: str) -> list[Path]:
    return [path for path in (cache / "locks").glob(f"{key}.*.use") if _is_locked(cache, path.name)]


def _is_locked(cache: Path, name: str) -> bool:
    from filelock import Timeout

    lock = _lock(cache, name)
    try:
        with lock.acquire(blocking=False):
            return False
    except Timeout:
        return True


def chosen(cache: Path, keys: Sequence[str]) -> list[str]:
    """The keys that begin with these words.

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


def prune(cache: Path, keys: Iterable[str]) -> Pruned:
    """Delete these environments, except those in use.

    Half-made folders and leftovers of killed builders are deleted in any case, unless somebody is building there.

    Raises:
        CacheError: the folder can't be written.
    """
    from filelock import Timeout

    doomed, deleted, used = set(keys), list[str](), list[str]()
    size_bytes = freed_bytes = 0
    for key in _keys(cache):
        lock = _lock(cache, f"{key}.lock")
        try:
            with lock.acquire(blocking=False):
                paths = list(_leftovers(cache, key))
                made = read_made(cache, key)
                if (key in doomed or made is None) and not _users(cache, key):
                    paths = [cache / key]
                    deleted.append(key)
                elif key in doomed:
                    used.append(key)
                size_bytes += disk_bytes(paths)
                freed_bytes += disk_bytes(paths, is_freed=True)
                for path in paths:
                    delete(path)
        except Timeout:
            used += [key] if key in doomed else []
    return Pruned(deleted=tuple(deleted), in_use=tuple(used), size_bytes=size_bytes, freed_bytes=freed_bytes)


def _leftovers(cache: Path, key: str) -> Iterator[Path]:
    """What killed builders left beside the environment. Only who holds the lock may ask."""
    made = read_made(cache, key)
    current = Path(made.python).parent.parent.name if made else None
    yield from (path for path in (cache / key).glob("venv-*") if path.name != current)
    yield from (cache / key).glob(".environment.json.*")


def remove_leftovers(cache: Path, key: str) -> None:
    """Delete what killed builders left. Only who holds the lock may call this."""
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


def disk_bytes(paths: Iterable[Path], *, is_freed: bool = False) -> int:
    """The bytes that folders take on disk. A file with several links in them counts once.

    Args:
        paths: folders, or files.
        is_freed: whether files that have links elsewhere count as nothing: deleting these folders would not free them.
    """
    sizes: dict[tuple[int, int], int] = {}
    links: dict[tuple[int, int], int] = {}
    waiting = [str(path) for path in paths]
    while waiting:
        with contextlib.suppress(OSError):  # it was deleted just now
            path = waiting.pop()
            stat = os.lstat(path)
            identity = (stat.st_dev, stat.st_ino)
            is_folder = os.path.isdir(path) and not os.path.islink(path)  # noqa: PTH112, PTH114  fast for 100,000 files
            sizes[identity] = stat.st_blocks * 512
            links[identity] = links.get(identity, stat.st_nlink if is_freed and not is_folder else 1) - 1
            waiting += [entry.path for entry in os.scandir(path)] if is_folder else []
    return sum(size for identity, size in sizes.items() if links[identity] <= 0)
