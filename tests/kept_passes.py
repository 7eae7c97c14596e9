"""Passes that are kept: a long test does not run again while nothing that it reads has changed.

    python tests/kept_passes.py

adds the passes of this machine to `kept_passes.txt`, which is committed: what a test found on the tested versions holds
for every clone that has the same files and the same versions. (Delete the file first to forget tests that are gone.)
"""

from __future__ import annotations

import ast
import functools
import hashlib
import importlib.metadata
import os
import platform
import re
import sysconfig
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import pytest
from packaging.requirements import Requirement

#: The passes that are committed, a line each: the test and the fingerprint of what it read.
COMMITTED = Path(__file__).with_name("kept_passes.txt")

REASON = "passed before, and nothing that it reads has changed since (--no-kept-passes runs it)"


class KeptPasses:
    """Passes, each with the fingerprint of what the test read.

    Args:
        folder: the passes of this machine, one file for each test.
        committed: the passes that came with the clone: the fingerprint by test.
        runs_all: run every test, and keep the new passes.
    """

    def __init__(self, folder: Path, committed: Mapping[str, str] = {}, *, runs_all: bool = False) -> None:
        self.folder = folder
        self.committed = committed
        self.runs_all = runs_all

    @contextmanager
    def unless_unchanged(self, test: str, fingerprint: str) -> Iterator[None]:
        """Skip the test if it passed with this fingerprint. Keep the pass if the block ends without an exception."""
        path = self.folder / re.sub(r"[^\w.@-]", "_", test.replace(":", "@"))  # timm:resnet18 is not timm_resnet18
        known = {self.committed.get(path.name), path.read_text() if path.is_file() else None}
        if not self.runs_all and fingerprint in known:
            pytest.skip(REASON)
        path.unlink(missing_ok=True)
        yield
        self.folder.mkdir(parents=True, exist_ok=True)
        path.write_text(fingerprint)


def cache_folder() -> Path:
    """Where `.ci/run` keeps its environment, too."""
    return Path(os.environ.get("TORCHZOO_CI_CACHE") or Path.home() / ".cache" / "torchzoo-ci") / "passes"


def read_committed(path: Path = COMMITTED) -> dict[str, str]:
    lines = path.read_text(encoding="utf-8").splitlines() if path.exists() else []
    return dict(line.split(" ", 1) for line in lines)


def write_committed(folder: Path, path: Path = COMMITTED) -> None:
    """Add the passes of a folder to the committed ones. A pass that came with the clone is not in the folder."""
    passes = read_committed(path) | {file.name: file.read_text() for file in folder.iterdir()}
    path.write_text("".join(f"{test} {passes[test]}\n" for test in sorted(passes)), encoding="utf-8")


def fingerprint(paths: Iterable[Path], facts: Iterable[str] = ()) -> str:
    """A hash of files, of all files in folders (their names and contents), and of `facts`.

    Comments and layout of Python files do not count.
    """
    found = hashlib.sha256()
    for path in paths:
        for file in sorted(path.rglob("*")) if path.is_dir() else [path]:
            if file.is_file() and "__pycache__" not in file.parts:
                content = meaning(file.read_bytes()) if file.suffix == ".py" else file.read_bytes()
                found.update(f"{file.relative_to(path.parent)} {len(content)}\n".encode() + content)
    found.update("\n".join(facts).encode())
    return found.hexdigest()


@functools.cache
def meaning(source: bytes) -> bytes:
    """What Python makes of a file. Of one that it can't read: the file as it is."""
    try:
        return ast.dump(ast.parse(source)).encode()
    except SyntaxError:
        return source


def software(constraints: Path) -> list[str]:
    """Python, the kind of processor, and what is installed of the packages that `constraints` names.

    Of these only what README's command installs counts, and where pip puts it: other packages may be there or not
    (Ray brings a colorama of its own, which is found as soon as Ray has been imported).
    """
    lines = constraints.read_text(encoding="utf-8").splitlines()
    named = {canonical(line.partition("==")[0]) for line in lines if "==" in line} & needed("torchzoo[models,dev]")
    site_packages = {Path(sysconfig.get_path(name)).resolve() for name in ("purelib", "platlib")}
    installed = {
        f"{canonical(one.name)} {one.version}"
        for one in importlib.metadata.distributions()
        if Path(str(one.locate_file(""))).resolve() in site_packages
    }
    python = ".".join(platform.python_version_tuple()[:2])
    return [python, platform.machine(), *sorted(one for one in installed if one.split()[0] in named)]


def needed(requirement: str) -> set[str]:
    """The packages that are installed with a requirement: its own, what that needs, and so on."""
    found: dict[str, Requirement] = {}
    ahead = [Requirement(requirement)]
    while ahead:
        one = ahead.pop()
        if str(one) not in found:
            found[str(one)] = one
            try:
                needs = [Requirement(text) for text in importlib.metadata.requires(one.name) or ()]
            except importlib.metadata.PackageNotFoundError:
                continue
            extras = one.extras or {""}
            ahead += [n for n in needs if n.marker is None or any(n.marker.evaluate({"extra": e}) for e in extras)]
    return {canonical(one.name) for one in found.values()}


def canonical(name: str) -> str:
    """A package's name as all spellings of it agree on it (PEP 503)."""
    return re.sub(r"[-_.]+", "-", name).lower()


if __name__ == "__main__":
    write_committed(cache_folder())
