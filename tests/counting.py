"""How the tests count the work of a step: quick ways for steps on the meta device, the full one in the weekly run."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterator
from typing import Any
from unittest import mock

import msgspec
import torch
from torch import Tensor
from torch.utils._pytree import tree_leaves

from remembered_shapes import RememberedShapes, described
from torchzoo.measure.passes.flops import count_work, moved_bytes
from torchzoo.model import Model
from torchzoo.record import Flops
from torchzoo.zoo.contract import take_step
from torchzoo.zoo.spec import ModelSpec

#: Models that go through their batch one by one: a hundred thousand operators for a batch of 32. Their work is counted
#: for two and for three samples, and each further sample adds what the third one adds. The weekly run counts the whole
#: batch.
LOOPS_OVER_ITS_BATCH = ("maml", "maml_omniglot")


def counted_step(model: Model) -> tuple[Any, Flops]:
    """What a step returns, and its work. What it draws depends on the model's seed alone."""
    torch.manual_seed(model.seed)
    results: list[Any] = []
    work = count_work(lambda: results.append(take_step(model)))
    return results[0], work


def count_step_of(spec: ModelSpec) -> Callable[[Model], Flops]:
    """How the work of a step on the meta device is counted."""
    if "TORCHZOO_WEEKLY" in os.environ:
        return count_fully
    return count_few if spec.name in LOOPS_OVER_ITS_BATCH else count_quickly


def count_fully(model: Model) -> Flops:
    return counted_step(model)[1]


def count_quickly(model: Model) -> Flops:
    """The same, with what is known from operators on operands of the same shapes."""
    with RememberedShapes(), mock.patch("torchzoo.measure.passes.flops.moved_bytes", RememberedBytes()):
        return count_fully(model)


def count_few(model: Model) -> Flops:
    """The total work, from steps with two and with three samples."""
    two, three = (count_quickly(type(model)(model.mode, model.device, size)) for size in (2, 3))
    assert two.bytes_moved is not None
    assert three.bytes_moved is not None
    more = model.batch_size - 2
    return msgspec.structs.replace(
        two,
        total=two.total + more * (three.total - two.total),
        bytes_moved=two.bytes_moved + more * (three.bytes_moved - two.bytes_moved),
    )


class RememberedBytes:
    """`moved_bytes`, worked out once for an operator and operands of the same shapes.

    What two operands are the same tensor counts, too: such a tensor is read once.
    """

    def __init__(self) -> None:
        self.known: dict[Any, int] = {}

    def __call__(self, func: Any, args: Any, kwargs: Any, result: Any) -> int:
        operands = [id(leaf) for leaf in tree_leaves((args, kwargs)) if isinstance(leaf, Tensor)]
        same = tuple(map(operands.index, operands))
        key = (func, described(args), described(tuple(kwargs.items())), same)
        if key not in self.known:
            self.known[key] = moved_bytes(func, args, kwargs, result)
        return self.known[key]


@contextlib.contextmanager
def matrix_products_in_bf16() -> Iterator[None]:
    """oneDNN multiplies matrices of fp32 in bf16 where the processor can: twice as fast, or more.

    What the contract looks at needs no more digits: shapes, what changes, what waits, what is finite.
    """
    products = torch.backends.mkldnn.matmul
    before, products.fp32_precision = products.fp32_precision, "bf16"
    try:
        yield
    finally:
        products.fp32_precision = before
