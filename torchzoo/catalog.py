"""Find model folders (the zoo's and the user's), read their specs, load one `Model` class."""

from __future__ import annotations

import ast
import difflib
import fnmatch
import importlib.util
import os
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING

import msgspec

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

    def select(self, patterns: Sequence[str], suites: Sequence[str] = ()) -> list[str]:
        """Names of `suites`, then those that match `patterns` (a name, a glob as `hf_*`, a domain, `all`), once each.

        Raises:
            CatalogError: a pattern that matches nothing, no such suite, or one with a model that isn't there.
        """
        chosen: dict[str, None] = {}
        for suite in suites:
            names = read_suite(suite).models
            for name in names:
                if name not in self.folders:
                    raise CatalogError(f"suite {suite}: {_unknown(name, self.folders)}")
            chosen.update(dict.fromkeys(names))
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


class Suite(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A named choice of models: one of torchzoo's, or a user's YAML file with the same two fields."""

    description: str
    models: tuple[str, ...]


def suite_names() -> list[str]:
    """Of torchzoo's own suites."""
    return sorted(path.stem for path in (Path(__file__).resolve().parent / "suites").glob("*.yaml"))


def read_suite(name: str) -> Suite:
    """One of torchzoo's suites, or the YAML file of that path.

    Raises:
        CatalogError: neither is there, or the file is no suite.
    """
    import yaml

    path = Path(__file__).resolve().parent / "suites" / f"{name}.yaml"
    if name not in suite_names():
        path = Path(name)
        if path.suffix not in (".yaml", ".yml"):
            near = difflib.get_close_matches(name, suite_names(), n=1)
            hint = f"did you mean {near[0]}?" if near else f"known: {', '.join(suite_names())}, or a YAML file"
            raise CatalogError(f"no suite '{name}': {hint}")
    try:
        return msgspec.convert(yaml.safe_load(path.read_text(encoding="utf-8")), Suite)
    except (OSError, UnicodeDecodeError, yaml.YAMLError, msgspec.ValidationError) as error:
        raise CatalogError(f"can't read the suite {path}: {' '.join(str(error).split())}") from error


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
    return Catalog(_folders("models", "TORCHZOO_PATH", extra_folders))


def find_userbenchmarks() -> dict[str, Path]:
    """The folders of torchzoo's userbenchmarks by name, then those under `TORCHZOO_USERBENCHMARK_PATH`.

    Raises:
        CatalogError: a folder of that variable does not exist.
    """
    return _folders("userbenchmark", "TORCHZOO_USERBENCHMARK_PATH", ())


def _folders(kind: str, variable: str, extra: Iterable[Path]) -> dict[str, Path]:
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


def library_imports(spec: ModelSpec) -> list[str]:
    """What the files of a folder import of other libraries, as `module` or `module:attribute`; nothing is run."""
    imports: dict[str, None] = {}
    for path in sorted(Path(spec.folder).glob("*.py")):
        try:
            tree = ast.parse(path.read_bytes())
        except (OSError, SyntaxError, ValueError):
            continue  # the worker that loads the model will say so
        for node in ast.walk(tree):
            if isinstance(node, ast.Import):
                imports.update(dict.fromkeys(alias.name for alias in node.names))
            elif isinstance(node, ast.ImportFrom) and node.level == 0 and node.module:
                imports.update(dict.fromkeys(f"{node.module}:{alias.name}" for alias in node.names))
    ours = {*sys.stdlib_module_names, "torch", "torchzoo"}
    return [name for name in imports if name.partition(":")[0].partition(".")[0] not in ours]


#: What a model raises that asks for a value on the meta device, where there is none.
NEEDS_DATA = (RuntimeError, NotImplementedError, AttributeError)


def load_model_class(spec: ModelSpec) -> type[Model]:
    """Import the folder of `spec` as `torchzoo_models.<name>` and return its `Model` class.

    Raises:
        ImportError: the folder has no `__init__.py`, or the module in it has no class `Model` of torchzoo's.
    """
    from torchzoo.model import Model

    module = import_folder(Path(spec.folder), f"torchzoo_models.{spec.name}")
    model_class = getattr(module, "Model", None)
    if not (isinstance(model_class, type) and issubclass(model_class, Model)):
        raise ImportError(f"{module.__file__} has no class Model(torchzoo.model.Model)")
    return model_class


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
    sys.modules[full_name] = module
    try:
        spec.loader.exec_module(module)
    except BaseException:
        del sys.modules[full_name]
        raise
    return module
