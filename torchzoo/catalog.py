"""Find model folders (the zoo's and the user's), read their specs, load one `Model` class."""

from __future__ import annotations

import difflib
import fnmatch
import importlib.util
import os
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from torchzoo.spec import ModelSpec, SpecError, read_spec

if TYPE_CHECKING:
    from torchzoo.model import Model


class CatalogError(ValueError):
    """A name that no model, domain or glob answers to (the message suggests the nearest), or a missing folder."""


class Catalog:
    """Model folders by name. Reading a spec is put off until it is asked for, so one bad folder harms no other."""

    def __init__(self, folders: dict[str, Path]) -> None:
        self.folders = folders

    @property
    def names(self) -> list[str]:
        return sorted(self.folders, key=str.lower)

    def spec(self, name: str) -> ModelSpec:
        """Raises `SpecError` for a folder whose metadata can't be used."""
        return read_spec(self.folders[name])

    def specs(self) -> tuple[list[ModelSpec], list[SpecError]]:
        """All readable specs, and the errors of those that are not."""
        good: list[ModelSpec] = []
        bad: list[SpecError] = []
        for name in self.names:
            try:
                good.append(self.spec(name))
            except SpecError as error:
                bad.append(error)
        return good, bad

    def select(self, patterns: Sequence[str]) -> list[str]:
        """Names that match `patterns` (a name, a glob as `hf_*`, a domain, `all`), in the order given, once each.

        Raises:
            CatalogError: a pattern that matches nothing.
        """
        chosen: dict[str, None] = {}
        for pattern in patterns:
            matches = self._matches(pattern)
            if not matches:
                raise CatalogError(_unknown(pattern, self.names))
            chosen.update(dict.fromkeys(matches))
        return list(chosen)

    def _matches(self, pattern: str) -> list[str]:
        if pattern in self.folders:
            return [pattern]
        if pattern == "all":
            return self.names
        if any(character in pattern for character in "*?["):
            return fnmatch.filter(self.names, pattern)
        return [spec.name for spec in self.specs()[0] if spec.domain == pattern]


def _unknown(pattern: str, names: Iterable[str]) -> str:
    by_lower = {name.lower(): name for name in names}
    near = [by_lower[name] for name in difflib.get_close_matches(pattern.lower(), by_lower, n=3, cutoff=0.5)]
    hint = f"did you mean {' or '.join(near)}?" if near else "see `torchzoo list`"
    return f"no model, domain or glob '{pattern}': {hint}"


def bundled(kind: str) -> Path:
    """The folder `kind` (`models`, `userbenchmark`): beside the package in a checkout, inside it in a wheel."""
    package = Path(__file__).resolve().parent
    inside = package / "_bundled" / kind
    return inside if inside.is_dir() else package.parent / kind


def find_models(extra_folders: Iterable[Path] = ()) -> Catalog:
    """The zoo's models, then those under `TORCHZOO_PATH` and `extra_folders`; of equal names the last one counts.

    Raises:
        CatalogError: an extra folder that does not exist.
    """
    from_environment = [Path(part) for part in os.environ.get("TORCHZOO_PATH", "").split(os.pathsep) if part]
    folders: dict[str, Path] = {}
    for root in [bundled("models"), *from_environment, *extra_folders]:
        if not root.is_dir():
            raise CatalogError(f"no such models folder: {root}")
        folders.update(
            {
                entry.name: entry.resolve()
                for entry in sorted(root.iterdir())
                if entry.is_dir() and not entry.name.startswith((".", "_"))
            }
        )
    return Catalog(folders)


def load_model_class(spec: ModelSpec) -> type[Model]:
    """Import the folder of `spec` as `torchzoo_models.<name>` and return its `Model` class.

    Raises:
        ImportError: the folder has no `__init__.py`, or the module in it has no class `Model` of torchzoo's.
    """
    from torchzoo.model import Model

    init = Path(spec.folder) / "__init__.py"
    if not init.is_file():
        raise ImportError(f"{spec.folder} has no __init__.py")
    full_name = f"torchzoo_models.{spec.name}"
    module_spec = importlib.util.spec_from_file_location(full_name, init, submodule_search_locations=[spec.folder])
    assert module_spec is not None
    assert module_spec.loader is not None
    module = importlib.util.module_from_spec(module_spec)
    sys.modules[full_name] = module
    try:
        module_spec.loader.exec_module(module)
    except BaseException:
        del sys.modules[full_name]
        raise
    model_class = getattr(module, "Model", None)
    if not (isinstance(model_class, type) and issubclass(model_class, Model)):
        raise ImportError(f"{init} has no class Model(torchzoo.model.Model)")
    return model_class
