"""Folders of models and userbenchmarks: where they are, and how one is imported."""

from __future__ import annotations

import contextlib
import importlib.util
import os
import sys
from collections.abc import Iterable
from pathlib import Path
from types import ModuleType

import torchzoo
from torchzoo.errors import TorchzooError


class CatalogError(TorchzooError):
    """No model, suite or userbenchmark has that name (the message suggests the nearest), or a folder is missing."""


def bundled(kind: str) -> Path:
    """The folder `kind` (`models`, `userbenchmark`): beside the package in a checkout, inside it in a wheel."""
    package = Path(torchzoo.__file__).resolve().parent
    inside = package / "_bundled" / kind
    return inside if inside.is_dir() else package.parent / kind


def find_userbenchmarks() -> dict[str, Path]:
    """The folders of torchzoo's userbenchmarks by name, then those under `TORCHZOO_USERBENCHMARK_PATH`.

    Raises:
        CatalogError: a folder of that variable does not exist.
    """
    return find_folders("userbenchmark", "TORCHZOO_USERBENCHMARK_PATH", ())


def find_folders(kind: str, variable: str, extra: Iterable[Path]) -> dict[str, Path]:
    """Folders by name: torchzoo's own of this kind, those under the environment variable, then `extra`.

    Of equal names the last one counts.

    Raises:
        CatalogError: one of these folders does not exist.
    """
    from_environment = [Path(part) for part in os.environ.get(variable, "").split(os.pathsep) if part]
    folders: dict[str, Path] = {}
    for root in [bundled(kind), *from_environment, *extra]:
        if not root.is_dir():
            raise CatalogError(f"no such {kind} folder: {root}")
        folders.update(
            {
                entry.name: entry.resolve()
                for entry in sorted(root.iterdir())
                if entry.is_dir() and not entry.name.startswith((".", "_"))
            }
        )
    return folders


def import_folder(folder: Path, full_name: str) -> ModuleType:
    """Import `folder/__init__.py` as the package `full_name`, known by that name before its code runs.

    Raises:
        ImportError: there is none; and whatever its code raises.
    """
    init = folder / "__init__.py"
    if not init.is_file():
        raise ImportError(f"{folder} has no __init__.py")
    spec = importlib.util.spec_from_file_location(full_name, init, submodule_search_locations=[str(folder)])
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    with contextlib.ExitStack() as undo:
        sys.modules[full_name] = module
        undo.callback(sys.modules.pop, full_name)
        spec.loader.exec_module(module)
        undo.pop_all()
    return module
