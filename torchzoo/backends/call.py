"""One recorded call of a network: ahead-of-time backends compile for its inputs."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils._pytree import tree_flatten, tree_leaves, tree_unflatten


@dataclass(frozen=True)
class Call:
    """The inputs and the type of the output of a network's first call in an eager step."""

    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    output_type: type

    def as_kwargs(self, network: nn.Module) -> dict[str, Any]:
        """All inputs, by the names that `network.forward` gives them."""
        return dict(inspect.signature(network.forward).bind(*self.args, **self.kwargs).arguments)

    def outputs(self, network: nn.Module) -> tuple[list[Tensor], Callable[[Sequence[Tensor]], Any]]:
        """The call's output tensors, and a function that gives such tensors the structure that the network returns."""
        with torch.no_grad():
            leaves, structure = tree_flatten(network(*self.args, **self.kwargs))
        return leaves, lambda tensors: tree_unflatten(tensors, structure)


def tensors(args: tuple[Any, ...], kwargs: dict[str, Any]) -> list[Tensor]:
    """The tensors of a call, in the order in which they are given."""
    return [leaf for leaf in tree_leaves((args, kwargs)) if isinstance(leaf, Tensor)]
