"""What the tests of a model read: its pass is kept until one of these files, or what is installed, changes."""

from __future__ import annotations

import functools
from collections.abc import Iterable
from pathlib import Path

from examples import ROOT
from kept_passes import fingerprint, software
from torchzoo.zoo.spec import ModelSpec

#: What all models read of torchzoo and of its tests.
CONTRACT = (
    *(
        f"torchzoo/{name}.py"
        for name in ("__init__", "bounds", "case", "data", "errors", "files", "model", "tasks", "tensors")
    ),
    *(f"torchzoo/zoo/{name}" for name in ("__init__.py", "catalog.py", "contract.py", "folders.py", "requirements.py")),
    *(
        f"torchzoo/zoo/{name}"
        for name in ("collections.py", "rules.py", "spec.py", "waiting.py", "limits.yaml", "suites/__init__.py")
    ),
    "torchzoo/networks",
    *(f"torchzoo/measure/passes/{name}.py" for name in ("flops", "flop_formulas", "moved_bytes")),
    "torchzoo/measure/without_data.py",
    *(f"tests/{name}.py" for name in ("counting", "model_inputs", "pinned_work", "zoo/test_contract")),
    "constraints.txt",
)
#: What the table of models reads beside that. Its runs are named in it.
TABLE = (
    "docs/models.md",
    "tests/remembered_shapes.py",
    *(f"torchzoo/{name}.py" for name in ("commands/describe", "record", "store")),
)
#: What compiling reads beside that.
COMPILING = (
    "torchzoo/backends",
    *(f"torchzoo/measure/{name}.py" for name in ("compilation", "precision", "variant")),
    "tests/zoo/test_compiling.py",
)


def inputs_of(spec: ModelSpec, root: Path = ROOT, more: tuple[str, ...] = (), facts: Iterable[str] = ()) -> str:
    """A fingerprint of all that decides what a test of a model finds."""
    paths = [Path(spec.folder), *(root / name for name in (*CONTRACT, *more))]
    return fingerprint(paths, [*installed(), *facts])


@functools.cache
def installed() -> list[str]:
    """Python, the kind of processor, and the packages that `constraints.txt` names."""
    return software(ROOT / "constraints.txt")


def contained(path: Path) -> list[Path]:
    """The files of a folder, or the file itself."""
    files = path.rglob("*") if path.is_dir() else [path]
    return [file for file in files if file.is_file() and "__pycache__" not in file.parts]
