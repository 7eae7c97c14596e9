"""Bytecode that is taken over from another environment: only of the same file, and Python then compiles it no more."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from torchzoo.history.bytecode import compile_command, take_over_bytecode

TAG = sys.implementation.cache_tag
SITE = f"lib/python{sys.version_info.major}.{sys.version_info.minor}/site-packages"


@pytest.fixture
def venvs(tmp_path: Path) -> tuple[Path, Path]:
    """The packages of two environments. Of `lib`, `same.py` is one file with two links; `other.py` are two files."""
    for name in ("old", "new"):
        (tmp_path / name / SITE / "lib" / "inner").mkdir(parents=True)
        (tmp_path / name / SITE / "lib" / "other.py").write_text(f"VALUE = '{name}'\n")
    for file in ("same.py", "inner/deep.py", "not_compiled.py"):
        source = tmp_path / "old" / SITE / "lib" / file
        source.write_text("VALUE = 'same'\n")
        os.link(source, tmp_path / "new" / SITE / "lib" / file)
    subprocess.run([sys.executable, "-m", "compileall", "-q", tmp_path / "old" / SITE], check=True)
    (tmp_path / "old" / SITE / "lib" / "__pycache__" / f"not_compiled.{TAG}.pyc").unlink()
    return tmp_path / "old", tmp_path / "new"


def bytecode(venv: Path) -> set[str]:
    return {path.name.removesuffix(f".{TAG}.pyc") for path in (venv / SITE).rglob("*.pyc")}


def test_only_bytecode_of_the_same_file_is_taken_over(venvs: tuple[Path, Path], tmp_path: Path) -> None:
    old, new = venvs
    assert take_over_bytecode(new, [tmp_path / "nowhere", old]) == 2
    assert bytecode(new) == {"same", "deep"}
    assert take_over_bytecode(new, [old]) == 0  # it is there


def test_python_takes_it_as_it_is_and_compiles_only_the_rest(venvs: tuple[Path, Path]) -> None:
    old, new = venvs
    take_over_bytecode(new, [old])
    taken = new / SITE / "lib" / "__pycache__" / f"same.{TAG}.pyc"
    before = taken.stat()
    command = compile_command(new)
    subprocess.run([sys.executable, *command[1:]], check=True)  # `new` has no Python of its own
    assert bytecode(new) == {"same", "deep", "other", "not_compiled"}
    assert (taken.stat().st_ino, taken.stat().st_mtime_ns) == (before.st_ino, before.st_mtime_ns)
    code = "import lib.same, lib.other; print(lib.same.VALUE, lib.other.VALUE, lib.same.__cached__)"
    shown = subprocess.run(
        [sys.executable, "-v", "-c", code], cwd=new / SITE, capture_output=True, text=True, check=True
    )  # fmt: skip
    assert shown.stdout.split() == ["same", "new", str(taken)]
    assert f"matches {new / SITE / 'lib' / 'same.py'}" in shown.stderr  # "code object from ... matches": not stale
