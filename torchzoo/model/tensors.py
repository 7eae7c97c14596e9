"""Handle tensors of each kind (complex, nested, sparse, quantized) in nested containers: numbers, bytes and casts."""

from __future__ import annotations

import copy
import dataclasses
from collections.abc import Callable, MutableMapping
from typing import Any

import torch
from torch import Tensor
from torch.utils._pytree import tree_leaves, tree_map

#: Compressed sparse layouts, with the methods that return their indices.
_INDICES = {
    torch.sparse_csr: ("crow_indices", "col_indices"),
    torch.sparse_bsr: ("crow_indices", "col_indices"),
    torch.sparse_csc: ("ccol_indices", "row_indices"),
    torch.sparse_bsc: ("ccol_indices", "row_indices"),
}
COMPRESSED_LAYOUTS = frozenset(_INDICES)


# --- containers ---


def tensors_in(tree: Any) -> list[Tensor]:
    """All tensors in a nesting of lists, tuples, mappings, dataclasses and containers that PyTorch knows, in order."""
    leaves = tree_leaves(tree)
    if any(_fields(leaf) is not None for leaf in leaves):
        leaves = tree_leaves(opened(tree))
    return [leaf for leaf in leaves if isinstance(leaf, Tensor)]


def opened(tree: Any, *, is_leaf: Callable[[Any], bool] | None = None, _outer: tuple[int, ...] = ()) -> Any:
    """The nesting with a dict in place of each dataclass and mapping that PyTorch does not know as a container.

    Nodes for which `is_leaf` holds are not opened.
    """

    def open_leaf(leaf: Any) -> Any:
        fields = None if (is_leaf is not None and is_leaf(leaf)) or id(leaf) in _outer else _fields(leaf)
        return leaf if fields is None else opened(fields, is_leaf=is_leaf, _outer=(*_outer, id(leaf)))

    return tree_map(open_leaf, tree, is_leaf=is_leaf)


def mapped(function: Callable[[Tensor], Tensor], tree: Any) -> Any:
    """The nesting with `function` applied to each tensor. Dataclasses and mappings are copied, not changed."""

    def of_leaf(leaf: Any) -> Any:
        if isinstance(leaf, Tensor):
            return function(leaf)
        fields = _fields(leaf)
        if fields is None or not tensors_in(fields):
            return leaf
        changed = copy.copy(leaf)
        for name, value in fields.items():
            if isinstance(changed, MutableMapping):
                changed[name] = mapped(function, value)
            else:
                object.__setattr__(changed, name, mapped(function, value))  # the only way for a frozen dataclass
        return changed

    return tree_map(of_leaf, tree)


def _fields(leaf: Any) -> dict[Any, Any] | None:
    """The fields of a dataclass or mapping that PyTorch treats as a leaf; None for other leaves."""
    if isinstance(leaf, Tensor | type):
        return None
    if dataclasses.is_dataclass(leaf):
        return {
            field.name: getattr(leaf, field.name) for field in dataclasses.fields(leaf) if hasattr(leaf, field.name)
        }
    return dict(leaf) if isinstance(leaf, MutableMapping) else None


# --- one tensor ---


def is_inexact(value: Any) -> bool:
    """Whether the value is a tensor of floating-point or complex numbers."""
    return isinstance(value, Tensor) and (value.is_floating_point() or value.is_complex())


def cast(tensor: Tensor, dtype: torch.dtype) -> Tensor:
    """The tensor in a floating-point dtype, or its complex counterpart; a tensor of integers is unchanged."""
    if tensor.is_complex():
        return tensor.to(dtype.to_complex())
    return tensor.to(dtype) if tensor.is_floating_point() else tensor


def as_real(tensor: Tensor) -> Tensor:
    """The tensor; a complex one with real and imaginary part as last dimension, sharing memory if possible.

    A tensor in a compressed sparse layout is returned in COO format.
    """
    if tensor.layout in COMPRESSED_LAYOUTS:
        tensor = tensor.to_sparse()
    if not tensor.is_complex():
        return tensor
    if tensor.is_sparse:
        tensor = tensor.coalesce()
        pairs = torch.view_as_real(tensor.values())
        return torch.sparse_coo_tensor(tensor.indices(), pairs, (*tensor.shape, 2), is_coalesced=True)
    return torch.view_as_real(tensor.resolve_conj())


def parts_of(tensor: Tensor) -> list[Tensor]:
    """The plain tensors that make up a tensor: its numbers, then the indices or lengths of their places.

    A quantized tensor (a wrapper) has its numbers and scales. A plain tensor is its own part.
    """
    if tensor.is_sparse:
        return [tensor._values(), tensor._indices()]
    if tensor.layout in COMPRESSED_LAYOUTS:
        return [tensor.values(), *(getattr(tensor, name)() for name in _INDICES[tensor.layout])]
    if tensor.is_nested:
        return _parts_of_nested(tensor)
    if not hasattr(tensor, "__tensor_flatten__"):
        return [tensor]
    names, _ = tensor.__tensor_flatten__()
    return [part for name in names for part in parts_of(getattr(tensor, name))]


def _parts_of_nested(tensor: Any) -> list[Tensor]:
    if tensor.layout is not torch.jagged:
        return [torch.cat([one.reshape(-1) for one in tensor.unbind()]), tensor._nested_tensor_size()]
    if tensor.lengths() is None:
        return [tensor.values(), tensor.offsets()]
    return [torch.cat(tensor.unbind()), tensor.lengths()]  # the values have gaps between the parts


def stored_numbers(tensor: Tensor) -> Tensor:
    """The stored numbers of a tensor as a plain real tensor: no sparse zeros, but both parts of complex numbers."""
    return as_real(parts_of(tensor)[0])


def stored_bytes(tensor: Tensor) -> int:
    """The bytes of a tensor, with indices of a sparse, lengths of a nested, and scales of a quantized one."""
    return sum(part.nbytes for part in parts_of(tensor))


def same(tensor: Tensor, other: Tensor | None) -> bool:
    """Whether both tensors have the same kind, shape, type and values."""
    if other is None or tensor.dtype != other.dtype or tensor.layout != other.layout:
        return False
    ours, theirs = parts_of(tensor), parts_of(other)
    return len(ours) == len(theirs) and all(map(torch.equal, ours, theirs))


def is_finite(tree: Any) -> bool:
    """Whether all numbers of the tensors in a nesting are finite; of a sharded tensor, this process's part.

    Tensors are reduced to their extremes, which are not finite if an element is not, to save memory.
    """
    found = (stored_numbers(_own_part(tensor.detach())) for tensor in tensors_in(tree) if is_inexact(tensor))
    return all(bool(torch.stack(numbers.aminmax()).isfinite().all()) for numbers in found if numbers.numel())


def _own_part(tensor: Tensor) -> Tensor:
    """This rank's part of a sharded tensor. Reading the whole tensor would need all ranks together."""
    return tensor.to_local() if hasattr(tensor, "to_local") else tensor


def kind_of(tensor: Tensor) -> str:
    """The kind of a tensor: `sparse CSR`, `nested`, `complex64`; empty for a plain tensor of real numbers."""
    if tensor.is_nested:
        return "nested"
    if tensor.layout is not torch.strided:
        return f"sparse {str(tensor.layout).rpartition('_')[2].upper()}"
    return str(tensor.dtype).removeprefix("torch.") if tensor.is_complex() else ""
