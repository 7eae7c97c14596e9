"""Find model folders (the zoo's and the user's), read their specs, load one `Model` class."""

from __future__ import annotations

import ast
import fnmatch
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from torchzoo.errors import nearest, written
from torchzoo.files import parse_python
from torchzoo.zoo.folders import CatalogError, find_folders, import_folder
from torchzoo.zoo.spec import ModelSpec, SpecError, read_spec
from torchzoo.zoo.suites import read_suite

if TYPE_CHECKING:
    from torchzoo.model import Model


class Catalog:
    """Model folders by name. A spec is read only when it is asked for, so a bad folder does no harm to the others."""

    def __init__(self, folders: dict[str, Path]) -> None:
        self.folders = folders

    @property
    def names(self) -> list[str]:
        return sorted(self.folders, key=str.lower)

    def spec(self, name: str) -> ModelSpec:
        """The spec of one model. Raises `SpecError` if its metadata can't be used."""
        return read_spec(self.folders[name])

    def specs(self) -> tuple[list[ModelSpec], list[SpecError]]:
        """The specs of all models whose metadata can be used, and the errors of the others."""
        good: list[ModelSpec] = []
        bad: list[SpecError] = []
        for name in self.names:
            try:
                good.append(self.spec(name))
            except SpecError as error:
                bad.append(error)
        return good, bad

    def select(self, patterns: Sequence[str], suites: Sequence[str] = ()) -> list[str]:
        """The names of the models that are chosen, each once.

        Args:
            patterns: each is a name, a glob such as `hf_*`, a domain, or `all`.
            suites: suites whose models are chosen, too. They come first.

        Raises:
            CatalogError: a pattern matches nothing, there is no such suite, or a model of a suite is not there.
        """
        chosen: dict[str, None] = {}
        for suite in suites:
            names = read_suite(suite).models
            for name in names:
                if name not in self.folders:
                    raise CatalogError(f"suite {suite}: {_unknown(name, self.folders)}")
            chosen.update(dict.fromkeys(names))
        for pattern in map(written, patterns):
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
    return f"no model, domain or glob '{pattern}': {nearest(pattern, names, otherwise='see `torchzoo list`')}"


def find_models(extra_folders: Iterable[Path] = ()) -> Catalog:
    """The zoo's models, and those under `TORCHZOO_PATH` and `extra_folders`. Of equal names the last one counts.

    Raises:
        CatalogError: a folder of models does not exist.
    """
    return Catalog(find_folders("models", "TORCHZOO_PATH", extra_folders))


def library_imports(spec: ModelSpec) -> list[str]:
    """The libraries that the files of a model import, as `module` or `module:attribute`. No code is run."""
    imports: dict[str, None] = {}
    for path in sorted(Path(spec.folder).glob("*.py")):
        tree = parse_python(path)
        for node in ast.walk(tree) if tree is not None else ():
            if isinstance(node, ast.Import):
                imports.update(dict.fromkeys(alias.name for alias in node.names))
            elif isinstance(node, ast.ImportFrom) and node.level == 0 and node.module:
                imports.update(dict.fromkeys(f"{node.module}:{alias.name}" for alias in node.names))
    ours = {*sys.stdlib_module_names, "torch", "torchzoo"}
    return [name for name in imports if name.partition(":")[0].partition(".")[0] not in ours]


#: What a model on the meta device raises when it asks for the value of a tensor: such tensors have none.
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
