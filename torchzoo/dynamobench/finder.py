"""Make the modules that dynamobench imports from the zoo's folders: `torchbenchmark`, `torchbenchmark.models.NAME`."""

from __future__ import annotations

import importlib.abc
import importlib.machinery
import sys
from collections.abc import Callable, Sequence
from types import ModuleType
from typing import Any

from torchzoo.dynamobench.names import NameRefused, listed, resolve
from torchzoo.zoo.catalog import Catalog

ROOT, MODELS, CANARIES = "torchbenchmark", "torchbenchmark.models", "torchbenchmark.canary_models"


class ZooFinder(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """A finder and loader of `torchbenchmark` and its modules.

    Args:
        catalog: the models.
        model_class: makes the class `Model` of an imported module from the requested name and the zoo's model, or the
            reason why there is none.
    """

    def __init__(self, catalog: Catalog, model_class: Callable[[str, str | NameRefused], type]) -> None:
        self.catalog = catalog
        self.model_class = model_class

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        if fullname in (ROOT, MODELS, CANARIES):
            return importlib.machinery.ModuleSpec(fullname, self, is_package=True)
        parent, _, name = fullname.rpartition(".")
        if parent != MODELS or resolve(name, self.catalog) is None:
            return None
        return importlib.machinery.ModuleSpec(fullname, self)

    def exec_module(self, module: ModuleType) -> None:
        contents: dict[str, Any] = {}
        if module.__name__ == ROOT:
            contents = {"_list_model_paths": self.model_paths, "_list_canary_model_paths": self.canary_paths}
        elif module.__name__ not in (MODELS, CANARIES):
            name = module.__name__.rpartition(".")[2]
            found = resolve(name, self.catalog)
            assert found is not None  # find_spec has checked
            contents = {"Model": self.model_class(name, found)}
        vars(module).update(contents)

    def model_paths(self) -> list[str]:
        """A path for each folder of the zoo. Dynamobench uses only its last part, as the name."""
        return [str(self.catalog.folders[name].with_name(listed(name))) for name in self.catalog.names]

    def canary_paths(self) -> list[str]:
        """The paths of models that TorchBench's CI does not run: none."""
        return []


def install(finder: ZooFinder) -> None:
    """Put `finder` before Python's others, also before a checkout of TorchBench."""
    sys.meta_path.insert(0, finder)
