"""The modules that dynamobench imports, made from our folders: `torchbenchmark`, `torchbenchmark.models.NAME`."""

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
    """Finds and makes `torchbenchmark` and its modules.

    Args:
        catalog: the models.
        model_class: makes the class `Model` of a module from the name that was asked for, and the model of ours or the
            reason why there is none. It is called when the module is imported.
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
            assert found is not None  # find_spec has looked
            contents = {"Model": self.model_class(name, found)}
        vars(module).update(contents)

    def model_paths(self) -> list[str]:
        """A path for each of our folders. Dynamobench takes its last part as the name, and nothing else of it."""
        return [str(self.catalog.folders[name].with_name(listed(name))) for name in self.catalog.names]

    def canary_paths(self) -> list[str]:
        """Of models that TorchBench's CI does not run: there are none here."""
        return []


def install(finder: ZooFinder) -> None:
    """Let Python ask `finder` first, also where a checkout of TorchBench could be found."""
    sys.meta_path.insert(0, finder)
