"""Parse pip requirements, and check whether the installed packages satisfy them.

Only parsing a requirement imports `packaging`: the installer begins without it.
"""

from __future__ import annotations

import importlib.metadata
import re
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from torchzoo.errors import TorchzooError, attempt, one_line

if TYPE_CHECKING:
    from packaging.requirements import Requirement
    from packaging.specifiers import SpecifierSet

#: Modules that some libraries install by mistake.
STRAY_MODULES = frozenset({"benchmarks", "docs", "example", "examples", "test", "tests"})


class RequirementError(TorchzooError):
    """An invalid pip requirement; the message is one line."""


def distribution_name(requirement: str) -> str:
    """The normalised name in a pip requirement: `Python_Doctr[torch]>=1` -> `python-doctr`.

    Raises:
        RequirementError: the text does not begin with a name.
    """
    match = re.match(r"[A-Za-z0-9][A-Za-z0-9._-]*", requirement)
    if match is None:
        raise RequirementError(f"not a pip requirement: {requirement!r}")
    return re.sub(r"[-_.]+", "-", match.group()).lower()


def parse_requirement(requirement: str) -> Requirement:
    """Parse a requirement with `packaging`.

    Raises:
        RequirementError: the text is no pip requirement.
    """
    from packaging.requirements import Requirement

    parsed = attempt(lambda: Requirement(requirement))
    if isinstance(parsed, Exception):  # a RecursionError for hundreds of brackets
        reason = str(parsed).partition("\n")[0]
        raise RequirementError(f"not a pip requirement: {requirement!r}: {reason}") from parsed
    return parsed


def applies(requirement: str) -> bool:
    """Whether the requirement's marker, if it has one, holds here.

    Raises:
        RequirementError: the text is no pip requirement, or its marker can't be evaluated.
    """
    marker = parse_requirement(requirement).marker
    if marker is None:
        return True
    holds = attempt(marker.evaluate)
    if isinstance(holds, Exception):
        raise RequirementError(f"not a pip requirement: {requirement!r}: {one_line(holds)}") from holds
    return holds


def read_constraints(path: Path) -> dict[str, SpecifierSet]:
    """The version specifiers of a constraints file by normalised name."""
    lines = [line for line in path.read_text(encoding="utf-8").splitlines() if line.strip() and line[0] != "#"]
    return {distribution_name(line): parse_requirement(line).specifier for line in lines}


def is_installed(requirement: str) -> bool:
    """Whether the distribution that `requirement` names is installed, in any version."""
    try:
        importlib.metadata.distribution(distribution_name(requirement))
    except importlib.metadata.PackageNotFoundError:
        return False
    return True


def unsatisfied(requirement: str, constraints: Mapping[str, SpecifierSet] | None = None) -> str | None:
    """The reason why a requirement is not satisfied: `timm not installed`, `timm 0.9 is installed, not >=1.0`.

    Args:
        requirement: a pip requirement. If its marker does not hold here, it is satisfied.
        constraints: more constraints on versions, as `read_constraints` returns them.

    Returns:
        None if the requirement is satisfied.
    """
    try:
        if not applies(requirement):
            return None
    except RequirementError as error:
        return str(error)
    wanted = parse_requirement(requirement)
    name = distribution_name(requirement)
    if not is_installed(requirement):
        return f"{name} not installed"
    version = importlib.metadata.version(name)
    if not wanted.specifier.contains(version, prereleases=True):
        return f"{name} {version} is installed, not {wanted.specifier}"
    constraint = (constraints or {}).get(name)
    if constraint is not None and not constraint.contains(version, prereleases=True):
        return f"{name} {version} is installed, not {constraint} as in constraints.txt (see --no-constraints)"
    return None


def top_module(requirement: str) -> str:
    """The module of an installed distribution: `pyyaml>=6` -> `yaml`."""
    distribution = distribution_name(requirement)
    files = importlib.metadata.files(distribution) or []
    found = {file.parts[0].removesuffix(".py") for file in files if file.suffix == ".py"}
    modules = sorted(name for name in found - STRAY_MODULES if name.isidentifier() and not name.startswith("_"))
    same_name = distribution.replace("-", "_")
    return same_name if same_name in modules or not modules else modules[0]
