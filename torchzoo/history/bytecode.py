"""Bytecode of a new environment: taken over from others where the source is the same file, compiled where it is not.

To compile all of torch's and its neighbours' sources takes minutes of CPU time. A bisection makes an environment for
each midpoint, and nearly all files of two environments are hard links to the same file in the installer's own cache.
Python's bytecode names its source by time and size, which hard links share.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path


def compile_command(venv: Path) -> list[str]:
    """The command that compiles what has no bytecode yet, on all cores. It fails where a file can't be compiled."""
    return [str(venv / "bin" / "python"), "-m", "compileall", "-q", "-j", "0", str(_site(venv))]


def take_over_bytecode(venv: Path, others: Sequence[Path]) -> int:
    """Link the bytecode of other environments into one. Returns how many files were linked.

    Args:
        venv: a new environment of the Python that this process runs.
        others: environments that are complete. Those of other Pythons give nothing.
    """
    linked = 0
    site, others = _site(venv), [_site(other) for other in others]
    for folder, source in _sources(site):
        name = f"{source.removesuffix('.py')}.{sys.implementation.cache_tag}.pyc"
        target = folder / "__pycache__" / name
        for other in others:
            beside = other / folder.relative_to(site)
            if _is_same_file(folder / source, beside / source) and _link(beside / "__pycache__" / name, target):
                linked += 1
                break
    return linked


def _site(venv: Path) -> Path:
    """Where an environment has its packages."""
    return venv / "lib" / f"python{sys.version_info.major}.{sys.version_info.minor}" / "site-packages"


def _sources(site: Path) -> Iterator[tuple[Path, str]]:
    for folder, folders, files in os.walk(site):
        if "__pycache__" in folders:
            folders.remove("__pycache__")
        yield from ((Path(folder), file) for file in files if file.endswith(".py"))


def _is_same_file(one: Path, other: Path) -> bool:
    try:
        return one.samefile(other)
    except OSError:  # not there
        return False


def _link(bytecode: Path, target: Path) -> bool:
    try:
        target.parent.mkdir(exist_ok=True)
        os.link(bytecode, target)
    except OSError:  # it is not there, or is there already
        return False
    return True
