"""The bytes that an operator reads and writes, by its operands and results."""

from __future__ import annotations

import re
from math import prod
from typing import Any

import torch
from torch import Tensor

from torchzoo.model.tensors import stored_bytes, tensors_in

#: Operators that do not read the operand that they change: its old contents are overwritten.
WRITES_ONLY = re.compile(
    r"^(fill_|zero_|copy_|uniform_|normal_|bernoulli_|random_|exponential_|_foreach_(zero_|copy_))"
)
#: Operators that take the shape of a tensor but do not read it.
READS_NOTHING = re.compile(r"^((empty|zeros|ones|full|rand|randn|randint)_like|new_)")
#: Operators whose result is not written.
ALLOCATES = re.compile(r"^(new_)?empty(_like|_strided|_permuted|_quantized)?$|^resize_$|^set_$|^_resize_output_$")
#: Operators that read as many elements of their first operand as they return.
GATHERS = frozenset({"embedding", "index_select", "index", "_unsafe_index", "gather", "take", "select_scatter"})
#: Operators whose results from this one on are workspaces of the kernel, which their backward reads as `workspace`. How
#: large these are depends on the library and on the processor.
WORKSPACES = {"mkldnn_rnn_layer": 3}
#: Operators that change their first operand in place: as many of its elements as the other operands have.
SCATTERS = re.compile(
    r"^(_index_put_impl_|index_put_|scatter_|scatter_add_|scatter_reduce_|index_add_|index_copy_|put_)$"
)


def moved_bytes(func: Any, args: Any, kwargs: Any, result: Any) -> int:
    """Bytes that one operator reads and writes, by its operands, its results, and what it changes by its schema.

    Args:
        func: an `OpOverload`.
        args, kwargs: its operands; `out=` is written only.
        result: what it returned.
    """
    name = func._schema.name.partition("::")[2]
    if ALLOCATES.match(name):
        return 0
    read: dict[int, Tensor] = {}
    changed: dict[int, Tensor] = {}
    for argument, value in _by_argument(func._schema, args, kwargs):
        if argument.name == "workspace":
            continue
        tensors = {id(tensor): tensor for tensor in tensors_in(value)}
        is_changed = argument.alias_info is not None and argument.alias_info.is_write
        if is_changed:
            changed |= tensors
        if not (is_changed and (argument.kwarg_only or WRITES_ONLY.match(name))) and not READS_NOTHING.match(name):
            read |= tensors
    if name in WORKSPACES:
        result = result[: WORKSPACES[name]]
    old = {_storage(tensor) for tensor in (read | changed).values()}
    results = tensors_in(result)
    new = [tensor for tensor in results if _storage(tensor) not in old]
    if results and not new and not changed:
        return 0  # a view
    first = next(iter(read), None)
    sizes = {key: tensor_bytes(tensor) for key, tensor in read.items()}
    written = sum(map(tensor_bytes, new)) + sum(map(tensor_bytes, changed.values()))
    if first is not None and name in GATHERS:
        sizes[first] = min(sizes[first], written)
    if first is not None and SCATTERS.match(name):
        others = max((size for key, size in sizes.items() if key != first), default=0)
        sizes[first] = written = min(sizes[first], others)
    return sum(sizes.values()) + written


def _by_argument(schema: Any, args: Any, kwargs: Any) -> list[tuple[Any, Any]]:
    given = dict(zip((argument.name for argument in schema.arguments), args, strict=False)) | kwargs
    return [(argument, given[argument.name]) for argument in schema.arguments if argument.name in given]


def tensor_bytes(tensor: Tensor) -> int:
    """Bytes of the elements that are distinct in memory: an expanded dimension counts once."""
    if tensor.layout is not torch.strided or tensor.is_nested:
        return stored_bytes(tensor)
    distinct = prod(size for size, stride in zip(tensor.shape, tensor.stride(), strict=True) if stride or size == 0)
    return distinct * tensor.element_size()


def _storage(tensor: Tensor) -> int:
    """A number for the memory behind a tensor; for the tensor itself where it has no ordinary storage."""
    return tensor.untyped_storage()._cdata if tensor.layout is torch.strided else id(tensor)
