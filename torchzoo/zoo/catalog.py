"""Find models (folders of the zoo and of the user, and collections), read their specs, load one `Model` class."""

from __future__ import annotations

import ast
import fnmatch
import sys
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from torchzoo.errors import nearest, written
from torchzoo.files import parse_python
from torchzoo.zoo.collections import Collection, find_collections
from torchzoo.zoo.folders import CatalogError, find_folders, import_folder
from torchzoo.zoo.spec import ModelSpec, SpecError, read_spec
from torchzoo.zoo.suites import read_suite

if TYPE_CHECKING:
    from torchzoo.model import Model


class Catalog:
    """Models by name. A spec is read only on request, so a faulty folder does not affect the others.

    A folder has the name of its model. A model of a collection has the collection's name before its own:
    `timm:resnet18`. A folder with such a name takes precedence.
    """

    def __init__(self, folders: dict[str, Path], collections: Mapping[str, Collection] = {}) -> None:
        self.folders = folders
        self.collections = collections

    @property
    def names(self) -> list[str]:
        """The names of the model folders, without the models of collections."""
        return sorted(self.folders, key=str.lower)

    def __contains__(self, name: object) -> bool:
        return name in self.folders or (isinstance(name, str) and self._member(name) is not None)

    def spec(self, name: str) -> ModelSpec:
        """The spec of one model. Raises `SpecError` if its metadata can't be used, `KeyError` if there is no model."""
        found = None if name in self.folders else self._member(name)
        if found is None:
            return read_spec(self.folders[name])
        collection, member = found
        return collection.spec(member)

    def specs(self) -> tuple[list[ModelSpec], list[SpecError]]:
        """The specs of all model folders whose metadata can be used, and the errors of the others."""
        return self.specs_of(self.names)

    def specs_of(self, names: Iterable[str]) -> tuple[list[ModelSpec], list[SpecError]]:
        """The specs of these models whose metadata can be used, and the errors of the others."""
        good: list[ModelSpec] = []
        bad: list[SpecError] = []
        for name in names:
            try:
                good.append(self.spec(name))
            except SpecError as error:
                bad.append(error)
        return good, bad

    def select(self, patterns: Sequence[str], suites: Sequence[str] = ()) -> list[str]:
        """The names of the chosen models, without duplicates.

        Args:
            patterns: each is a name, a glob such as `hf_*` or `timm:resnet*`, a domain, or `all`. Domains and `all`
                choose model folders; models of collections are chosen by their names and by globs with a colon.
            suites: suites whose models are chosen, too, before those of the patterns.

        Raises:
            CatalogError: a pattern matches nothing, there is no such suite, or a model of a suite is missing.
            SpecError: the table of a collection can't be used.
        """
        chosen: dict[str, None] = {}
        for suite in suites:
            names = read_suite(suite).models
            for name in names:
                if name not in self:
                    raise CatalogError(f"suite {suite}: {self._unknown(name)}")
            chosen.update(dict.fromkeys(names))
        for pattern in map(written, patterns):
            matches = self._matches(pattern)
            if not matches:
                raise CatalogError(self._unknown(pattern))
            chosen.update(dict.fromkeys(matches))
        return list(chosen)

    def _member(self, name: str) -> tuple[Collection, str] | None:
        """The collection in a name, and the rest of the name; None if no collection has such a model."""
        prefix, colon, member = name.partition(":")
        collection = self.collections.get(prefix) if colon else None
        return (collection, member) if collection is not None and member in collection else None

    def _matches(self, pattern: str) -> list[str]:
        if pattern in self:
            return [pattern]
        if pattern == "all":
            return self.names
        if any(character in pattern for character in "*?["):
            prefix, _, glob = pattern.partition(":")
            found = fnmatch.filter(self.names, pattern)
            for name, collection in self.collections.items():
                if glob and fnmatch.fnmatchcase(name, prefix):
                    found += [f"{name}:{member}" for member in fnmatch.filter(collection.members, glob)]
            return found
        return [spec.name for spec in self.specs()[0] if spec.domain == pattern]

    def _unknown(self, pattern: str) -> str:
        """The message for a name that does not exist, with similar names."""
        prefix, colon, _ = pattern.partition(":")
        if colon and prefix in self.collections:
            known, otherwise = self.collections[prefix].names, f"see `torchzoo list '{prefix}:*'`"
            return f"no model '{pattern}': {nearest(pattern, known, otherwise=otherwise)}"
        if colon:
            known = sorted(self.collections)
            return f"no collection '{prefix}': {nearest(prefix, known, otherwise=f'there are {known}')}"
        same_name = [f"{name}:{pattern}" for name, one in self.collections.items() if pattern in one]
        hint = nearest(pattern, [*self.names, *same_name], otherwise="see `torchzoo list`")
        return f"no model, domain or glob '{pattern}': {hint}"


def find_models(extra_folders: Iterable[Path] = ()) -> Catalog:
    """The zoo's models, those under `TORCHZOO_PATH` and `extra_folders`, and the collections.

    Of models with equal names, the last counts.

    Raises:
        CatalogError: a folder of models does not exist.
    """
    return Catalog(find_folders("models", "TORCHZOO_PATH", extra_folders), find_collections())


def library_imports(spec: ModelSpec) -> list[str]:
    """The libraries that the files of a model import, as `module` or `module:attribute`. No code is run.

    The `preload` entries of its metadata come last.
    """
    imports: dict[str, None] = {}
    for path in sorted(Path(spec.folder).glob("*.py")):
        tree = parse_python(path)
        for node in ast.walk(tree) if tree is not None else ():
            if isinstance(node, ast.Import):
                imports.update(dict.fromkeys(alias.name for alias in node.names))
            elif isinstance(node, ast.ImportFrom) and node.level == 0 and node.module:
                imports.update(dict.fromkeys(f"{node.module}:{alias.name}" for alias in node.names))
    ours = {*sys.stdlib_module_names, "torch", "torchzoo", "torchzoo_models"}
    found = [name for name in imports if name.partition(":")[0].partition(".")[0] not in ours]
    return [*found, *spec.preload]


#: Errors of a model on the meta device that reads the value of a tensor, since such tensors have none.
NEEDS_DATA = (RuntimeError, NotImplementedError, AttributeError)


def load_model_class(spec: ModelSpec) -> type[Model]:
    """The `Model` class of `spec`.

    A model's folder is imported as `torchzoo_models.<name>` and has the class. A collection's folder is imported as
    `torchzoo_collections.<name>` and makes the class: `model_class(name)`.

    Raises:
        ImportError: the folder has no `__init__.py`, or the file has no such class or function.
    """
    from torchzoo.model import Model

    if spec.collection:
        module = import_folder(Path(spec.folder), f"torchzoo_collections.{spec.collection}")
        factory = getattr(module, "model_class", None)
        model_class = factory(spec.name.partition(":")[2]) if callable(factory) else None
        what = f"no model_class(name) that makes a torchzoo.model.Model of '{spec.name}'"
    else:
        module = import_folder(Path(spec.folder), f"torchzoo_models.{spec.name}")
        model_class = getattr(module, "Model", None)
        what = "no class Model(torchzoo.model.Model)"
    if not (isinstance(model_class, type) and issubclass(model_class, Model)):
        raise ImportError(f"{module.__file__} has {what}")
    return model_class
