"""torchzoo: measure PyTorch models honestly, one or the whole zoo."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from torchzoo.analysis.frame import load

__version__ = "0.2.0"
__all__ = ["__version__", "load"]


def __getattr__(name: str) -> Any:
    """`torchzoo.load`, imported where it is used: the command line starts without it."""
    if name == "load":
        from torchzoo.analysis.frame import load

        return load
    raise AttributeError(f"module 'torchzoo' has no attribute '{name}'")
