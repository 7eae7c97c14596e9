"""torchzoo: measure PyTorch models honestly, one or the whole zoo."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from torchzoo.analysis.frame import load

__version__ = "0.2.0"
__all__ = ["__version__", "load", "run"]


def __getattr__(name: str) -> Any:
    """Import `torchzoo.load` and `torchzoo.run` on first use: the command line starts without them."""
    if name == "load":
        from torchzoo.analysis.frame import load

        return load
    if name == "run":
        return import_module("torchzoo.run")  # a package that can be called
    raise AttributeError(f"module 'torchzoo' has no attribute '{name}'")
