"""What pip requirements ask for, and whether what is installed here satisfies them."""

from __future__ import annotations

import importlib.metadata
import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from packaging.requirements import Requirement


def is_installed(requirement: str) -> bool:
    """Whether the distribution that `requirement` names is installed, at whatever version."""
    try:
        importlib.metadata.distribution(distribution_name(requirement))
    except importlib.metadata.PackageNotFoundError:
        return False
    return True


def unsatisfied(requirement: str) -> str | None:
    """Why what is installed does not meet a requirement: `timm not installed`, `timm 0.9.2 is installed, not >=1.0`."""
    name = distribution_name(requirement)
    if not is_installed(requirement):
        return f"{name} not installed"
    if re.fullmatch(r"[\w.-]+", requirement):  # any version will do
        return None
    wanted, version = parse_requirement(requirement).specifier, importlib.metadata.version(name)
    return None if wanted.contains(version, prereleases=True) else f"{name} {version} is installed, not {wanted}"


def distribution_name(requirement: str) -> str:
    """The normalised name in a pip requirement: `Python_Doctr[torch]>=1` -> `python-doctr`."""
    match = re.match(r"[A-Za-z0-9][A-Za-z0-9._-]*", requirement)
    if match is None:
        raise ValueError(f"not a pip requirement: '{requirement}'")
    return re.sub(r"[-_.]+", "-", match.group()).lower()


def parse_requirement(requirement: str) -> Requirement:
    """The requirement as `packaging` reads it.

    Raises:
        ValueError: it is no pip requirement; the message is one line.
    """
    from packaging.requirements import Requirement

    return Requirement(requirement)
