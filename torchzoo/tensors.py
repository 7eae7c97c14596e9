"""Tensors in nestings of containers, and what they take of memory."""

from __future__ import annotations

from typing import Any

from torch import Tensor
from torch.utils._pytree import tree_leaves


def tensors_in(tree: Any) -> list[Tensor]:
    """All tensors in a nesting of lists, tuples, dicts and other containers that PyTorch knows, in their order."""
    return [leaf for leaf in tree_leaves(tree) if isinstance(leaf, Tensor)]


def stored_bytes(tensor: Tensor) -> int:
    """The bytes of a tensor: of a quantized one (a wrapper), those of its numbers and scales; of a sparse one in COO
    format, those of its values and of their indices.
    """
    if tensor.is_sparse:
        return tensor._indices().nbytes + tensor._values().nbytes
    if not hasattr(tensor, "__tensor_flatten__"):
        return tensor.nbytes
    names, _ = tensor.__tensor_flatten__()
    return sum(stored_bytes(getattr(tensor, name)) for name in names)
