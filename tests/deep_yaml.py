"""What is said of deep YAML: since version 6.0.4 PyYAML refuses it first, at some 1,000 levels."""

from __future__ import annotations

import yaml
from packaging.version import Version

PYYAML_REFUSES = Version(yaml.__version__) >= Version("6.0.4")


def said_of_depth(before: str) -> str:
    """PyYAML's words, or what is said with an older one."""
    return "exceeded maximum nesting depth" if PYYAML_REFUSES else before
