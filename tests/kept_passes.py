"""Passes that are kept: a long test does not run again while nothing that it reads has changed."""

from __future__ import annotations

import hashlib
import importlib.metadata
import os
import platform
import re
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

REASON = "passed before, and nothing that it reads has changed since (--no-kept-passes runs it)"


class KeptPasses:
    """The passes kept in a folder: one file for each test, with the fingerprint of what the test read."""

    def __init__(self, folder: Path, *, runs_all: bool = False) -> None:
        self.folder = folder
        self.runs_all = runs_all  # run every test, and keep the new passes

    @contextmanager
    def unless_unchanged(self, test: str, fingerprint: str) -> Iterator[None]:
        """Skip the test if it passed with this fingerprint. Keep the pass if the block ends without an exception."""
        path = self.folder / re.sub(r"[^\w.-]", "_", test)
        if not self.runs_all and path.is_file() and path.read_text() == fingerprint:
            pytest.skip(REASON)
        path.unlink(missing_ok=True)
        yield
        self.folder.mkdir(parents=True, exist_ok=True)
        path.write_text(fingerprint)


def cache_folder() -> Path:
    """Where `.ci/run` keeps its environment, too."""
    return Path(os.environ.get("TORCHZOO_CI_CACHE") or Path.home() / ".cache" / "torchzoo-ci") / "passes"


def fingerprint(paths: Iterable[Path], facts: Iterable[str] = ()) -> str:
    """A hash of files, of all files in folders (their names and contents), and of `facts`."""
    found = hashlib.sha256()
    for path in paths:
        for file in sorted(path.rglob("*")) if path.is_dir() else [path]:
            if file.is_file() and "__pycache__" not in file.parts:
                content = file.read_bytes()
                found.update(f"{file.relative_to(path.parent)} {len(content)}\n".encode() + content)
    found.update("\n".join(facts).encode())
    return found.hexdigest()


def software() -> list[str]:
    """The versions of Python and of everything that is installed, and the kind of processor."""
    installed = {f"{one.name} {one.version}" for one in importlib.metadata.distributions()}
    return [platform.python_version(), platform.machine(), *sorted(installed)]
