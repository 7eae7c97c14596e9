"""Read suites: named choices of models, each a YAML file."""

from __future__ import annotations

from pathlib import Path

import msgspec

from torchzoo.errors import nearest
from torchzoo.files import FileError, read_yaml
from torchzoo.zoo.folders import CatalogError


class Suite(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A named choice of models: one of torchzoo's, or a user's YAML file with the same two fields."""

    description: str
    models: tuple[str, ...]


def suite_names() -> list[str]:
    """The names of torchzoo's own suites."""
    return sorted(path.stem for path in Path(__file__).resolve().parent.glob("*.yaml"))


def read_suite(name: str) -> Suite:
    """Read one of torchzoo's suites, or a YAML file.

    Args:
        name: the name of the suite, or the path of the file.

    Raises:
        CatalogError: there is no such suite or file, or the file is no suite.
    """
    path = Path(__file__).resolve().parent / f"{name}.yaml"
    if name not in suite_names():
        path = Path(name)
        if path.suffix not in (".yaml", ".yml"):
            known = f"known: {', '.join(suite_names())}, or a YAML file"
            raise CatalogError(f"no suite '{name}': {nearest(name, suite_names(), otherwise=known)}")
    try:
        return read_yaml(path, Suite)
    except FileError as error:
        raise CatalogError(f"can't read the suite {error}") from error
