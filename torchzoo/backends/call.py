"""Record a call of a network. Ahead-of-time backends compile for its inputs, and for no others."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils._pytree import tree_flatten, tree_unflatten

from torchzoo.backends import NotRunnable
from torchzoo.model.tensors import kind_of

#: Types of arguments that an exported graph contains as constants.
_CONSTANTS = (bool, int, float, complex, str, torch.dtype, torch.device, type(None))


@dataclass(frozen=True)
class Call:
    """The inputs and the type of the output of a network's first call in an eager step."""

    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    output_type: type
    unlike: str = ""  # the `difference` of a later call in the step; empty: all calls are alike

    def as_kwargs(self, network: nn.Module) -> dict[str, Any]:
        """All inputs, by the names in `network.forward`."""
        return dict(inspect.signature(network.forward).bind(*self.args, **self.kwargs).arguments)

    def difference(self, other: Call) -> str:
        """The first difference of another call in what a graph of this call has fixed, in words; empty without one.

        A graph fixes which arguments are given, the sizes and dtypes of tensors, and numbers and texts.
        """
        ours, structure = tree_flatten((self.args, self.kwargs))
        theirs, other_structure = tree_flatten((other.args, other.kwargs))
        if structure != other_structure:
            return "other arguments are given"
        pairs = zip(map(_fixed, ours), map(_fixed, theirs), strict=True)
        return next((f"{second} instead of {first}" for first, second in pairs if first != second), "")

    def require_alike(self, network: str, backend: str) -> None:
        """Raise `NotRunnable` if later calls differ: a graph of this call would compute wrong results for them."""
        if self.unlike:
            raise NotRunnable(
                f"{backend} compiles {network} for the inputs of one call, and the step also calls it with others: "
                f"{self.unlike}"
            )

    def outputs(self, network: nn.Module) -> tuple[list[Tensor], Callable[[Sequence[Tensor]], Any]]:
        """The call's output tensors, and a function that gives tensors the structure of the network's outputs."""
        with torch.no_grad():
            leaves, structure = tree_flatten(network(*self.args, **self.kwargs))
        return leaves, lambda tensors: tree_unflatten(tensors, structure)


def _fixed(leaf: Any) -> str:
    if isinstance(leaf, Tensor):
        kind = kind_of(leaf) if leaf.is_nested or leaf.layout is not torch.strided else ""
        sizes = " x ".join(map(str, leaf.shape if not leaf.is_nested else (leaf.size(0), "?"))) or "one number"
        return f"a {f'{kind} tensor'.strip()} of {sizes} ({str(leaf.dtype).removeprefix('torch.')})"
    return repr(leaf) if isinstance(leaf, _CONSTANTS) else type(leaf).__name__
