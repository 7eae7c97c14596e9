"""Which requirements of the models are installed, and pip to install the rest; needs only the standard library."""

from __future__ import annotations

import importlib.metadata
import re


def distribution_name(requirement: str) -> str:
    """The normalised name in a pip requirement: `Python_Doctr[torch]>=1` -> `python-doctr`."""
    match = re.match(r"[A-Za-z0-9][A-Za-z0-9._-]*", requirement)
    if match is None:
        raise ValueError(f"not a pip requirement: '{requirement}'")
    return re.sub(r"[-_.]+", "-", match.group()).lower()


def is_installed(requirement: str) -> bool:
    """Whether the distribution that `requirement` names is installed, at whatever version."""
    try:
        importlib.metadata.distribution(distribution_name(requirement))
    except importlib.metadata.PackageNotFoundError:
        return False
    return True
