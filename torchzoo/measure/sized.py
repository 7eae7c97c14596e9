"""A model with batches of several sizes: other numbers of samples, or other lengths."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.utils._pytree import tree_map

from torchzoo.backends import NotRunnable
from torchzoo.errors import attempt, one_line
from torchzoo.model import Model
from torchzoo.model.tasks import LanguageModel


class Sized:
    """A model, and the batches that it can be given: `use` gives it one of them.

    Args:
        model: the one whose networks are compiled.
        batches: by size, its own first.
        is_batch_size: whether a size is that of the batch; otherwise it is a length.
        problems: why a size has no batch.
    """

    def __init__(
        self, model: Model, batches: dict[int, Any], *, is_batch_size: bool, problems: dict[int, str] | None = None
    ) -> None:
        self.model, self.batches, self.is_batch_size = model, batches, is_batch_size
        self.problems = problems or {}

    def use(self, size: int) -> None:
        self.model.batch = self.batches[size]
        if self.is_batch_size:
            self.model.batch_size = size


def batches_of(model: Model, build: Callable[[int], Model]) -> Sized:
    """The batches B, 2 B, B + 1, B / 2 and 1, each made by a model that is built for it."""
    own = model.batch_size
    batches, problems = {own: model.batch}, {}
    for size in dict.fromkeys((2 * own, own + 1, own // 2, 1)):
        if size not in (0, own):
            made = attempt(lambda size=size: build(size).batch)  # type: ignore[misc]
            if isinstance(made, Exception):
                problems[size] = in_a_line(made)
            else:
                batches[size] = made
    return Sized(model, batches, is_batch_size=True, problems=problems)


def lengths_of(model: Model) -> Sized:
    """The lengths T, T / 2, 3 T / 4 and T / 2 - 1, cut from the batch. A longer one may have no positions.

    Raises:
        NotRunnable: it is not known what a length is.
    """
    if not isinstance(model, LanguageModel):
        raise NotRunnable("it is no `torchzoo.model.tasks.LanguageModel`, so that it is not known what a length is")
    own = model.length
    sizes = [size for size in (own // 2, 3 * own // 4, own // 2 - 1) if size > 1]
    batches = {own: model.batch} | {size: _cut(model.batch, own, size) for size in dict.fromkeys(sizes)}
    return Sized(model, batches, is_batch_size=False)


def _cut(batch: Any, length: int, size: int) -> Any:
    """The first `size` positions of all tensors (B, T, ...), with the strides of tensors that were made so."""

    def cut(leaf: Any) -> Any:
        is_sequence = isinstance(leaf, Tensor) and leaf.ndim > 1 and leaf.shape[1] == length
        if not is_sequence:
            return leaf
        return leaf[:, :size].clone(memory_format=torch.contiguous_format)  # `contiguous` keeps the strides of one row

    return tree_map(cut, batch)


def in_a_line(error: Exception) -> str:
    """The name of an error and the beginning of what it says."""
    return f"{type(error).__name__}: {one_line(error)[:300]}"
