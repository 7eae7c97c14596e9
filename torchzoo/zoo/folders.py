"""Find and import folders of models and userbenchmarks."""

from __future__ import annotations

import contextlib
import importlib.util
import os
import sys
from collections.abc import Iterable
from importlib.machinery import ModuleSpec, SourceFileLoader
from pathlib import Path
from types import ModuleType

import torchzoo
from torchzoo.errors import TorchzooError, attempt, written


class CatalogError(TorchzooError):
    """There is no model, suite, userbenchmark or folder of that name. The message suggests the nearest names."""


def checkout() -> Path | None:
    """The root of the checkout that this torchzoo runs from; None if it was installed from a wheel."""
    package = Path(torchzoo.__file__).resolve().parent
    return None if (package / "_bundled").is_dir() else package.parent


def bundled(kind: str) -> Path:
    """The folder `kind` (`models`, `userbenchmark`): beside the package in a checkout, inside it in a wheel."""
    return (checkout() or Path(torchzoo.__file__).resolve().parent / "_bundled") / kind


def find_userbenchmarks() -> dict[str, Path]:
    """The folders of userbenchmarks by name: torchzoo's own, and those under `TORCHZOO_USERBENCHMARK_PATH`.

    Raises:
        CatalogError: a folder that the variable names does not exist.
    """
    return find_folders("userbenchmark", "TORCHZOO_USERBENCHMARK_PATH", ())


def find_folders(kind: str, variable: str, extra: Iterable[Path]) -> dict[str, Path]:
    """The folders of one kind by name. Of folders with equal names, the last counts.

    A link has its own name, not that of the folder behind it. A name that is not UTF-8 is escaped.

    Args:
        kind: `models`, `collections` or `userbenchmark`. Torchzoo's own folders come first.
        variable: the environment variable with parents of more folders, which come next.
        extra: parents of more folders, which come last.

    Raises:
        CatalogError: a parent does not exist or can't be read.
    """
    from_environment = [Path(part) for part in os.environ.get(variable, "").split(os.pathsep) if part]
    folders: dict[str, Path] = {}
    for root in [bundled(kind), *from_environment, *extra]:
        try:
            if not root.is_dir():
                raise CatalogError(f"no such {kind} folder: {root}")
            entries = sorted(root.resolve().iterdir())
        except OSError as error:
            raise CatalogError(f"can't read the {kind} folder {root}: {error.strerror}") from error
        folders.update(
            {
                written(entry.name): entry
                for entry in entries
                if entry.is_dir() and not entry.name.startswith((".", "_"))
            }
        )
    return folders


def make_shared_importable() -> None:
    """Put the package `torchzoo_models` into `sys.modules`: its `_shared` has the code that model folders share.

    A folder that is imported as `torchzoo_models.NAME` imports from `.._shared`, wherever the folder is.
    """
    spec = ModuleSpec("torchzoo_models", None, is_package=True)
    spec.submodule_search_locations = [str(bundled("models"))]
    sys.modules.setdefault(spec.name, importlib.util.module_from_spec(spec))


def import_folder(folder: Path, full_name: str) -> ModuleType:
    """Import `folder/__init__.py` as the package `full_name`, as `import_file` does."""
    return import_file(folder / "__init__.py", full_name)


def import_file(file: Path, full_name: str) -> ModuleType:
    """Import a file as the module `full_name`, which is in `sys.modules` before its code runs.

    Raises:
        ImportError: there is no such file, or its nesting is too deep for Python to parse. Errors of its code
            propagate.
    """
    if not file.is_file():
        raise ImportError(f"{file.parent} has no {file.name}")
    loader = SourceFileLoader(full_name, str(file))
    if isinstance(attempt(lambda: loader.get_code(full_name)), MemoryError | RecursionError):  # by deep nesting
        raise ImportError(f"{file} is nested deeper than Python can parse")
    spec = importlib.util.spec_from_file_location(full_name, file, loader=loader)
    assert spec is not None
    module = importlib.util.module_from_spec(spec)
    make_shared_importable()
    with contextlib.ExitStack() as undo:
        sys.modules[full_name] = module
        undo.callback(sys.modules.pop, full_name)
        loader.exec_module(module)
        undo.pop_all()
    return module
