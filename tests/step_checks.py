"""What the contract tests look at inside a step: changed parameters, synchronising operators, resident tensors."""

from __future__ import annotations

import fnmatch
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor
from torch.optim.optimizer import register_optimizer_step_post_hook, register_optimizer_step_pre_hook
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from torchzoo.model import Model

# Operators whose result's size or value must reach the host: on a GPU each of them waits for the device.
SYNCHRONISING = frozenset(
    {
        "aten::_local_scalar_dense",
        "aten::nonzero",
        "aten::masked_select",
        "aten::unique_dim",
        "aten::_unique2",
        "aten::unique_consecutive",
        "aten::bincount",
        "aten::equal",
        "aten::repeat_interleave.Tensor",
        "torchvision::nms",
        "aten::_ctc_loss",  # on CUDA it copies the lengths from the host
        "aten::_fused_moving_avg_obs_fq_helper",  # on CUDA it reads its switch and checks zero points on the host
    }
)


class SynchronisingOperators(TorchDispatchMode):
    """Collects the names of the operators that would make a GPU step wait, optimizers left out.

    (On the CPU an optimizer's step counters are CPU tensors, as they are on a GPU; reading those costs no wait there.)
    """

    def __init__(self) -> None:
        super().__init__()
        self.seen: set[str] = set()
        self.in_optimizer = False

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        name = func._schema.name
        by_mask = name in ("aten::index", "aten::index_put", "aten::index_put_", "aten::_index_put_impl_") and any(
            isinstance(index, Tensor) and index.dtype in (torch.bool, torch.uint8) for index in args[1]
        )
        if not self.in_optimizer and (name in SYNCHRONISING or f"{name}.{func._overloadname}" in SYNCHRONISING):
            self.seen.add(name)
        if by_mask and not self.in_optimizer:
            self.seen.add(f"{name} by a mask")
        return func(*args, **(kwargs or {}))


@contextmanager
def synchronising_operators() -> Iterator[set[str]]:
    mode = SynchronisingOperators()

    def entering(*_: object) -> None:
        mode.in_optimizer = True

    def leaving(*_: object) -> None:
        mode.in_optimizer = False

    hooks = [register_optimizer_step_pre_hook(entering), register_optimizer_step_post_hook(leaving)]
    try:
        with mode:
            yield mode.seen
    finally:
        for hook in hooks:
            hook.remove()


def trainable_parameters(model: Model) -> dict[str, Tensor]:
    """Trainable parameters of all networks by `network.parameter` name."""
    return {
        f"{network_name}.{name}": parameter
        for network_name, network in model.networks().items()
        for name, parameter in network.named_parameters()
        if parameter.requires_grad
    }


def unchanged_by_a_train_step(model: Model, allowed: dict[str, str]) -> list[str]:
    """Names of trainable parameter tensors that one train step leaves exactly as they were, allowed ones left out."""
    before = {name: parameter.detach().clone() for name, parameter in trainable_parameters(model).items()}
    model.train_step()
    return [
        name
        for name, parameter in trainable_parameters(model).items()
        if torch.equal(parameter, before[name]) and not any(fnmatch.fnmatch(name, pattern) for pattern in allowed)
    ]


def tensors(tree: Any) -> list[Tensor]:
    return [leaf for leaf in tree_leaves(tree) if isinstance(leaf, Tensor)]


def element_count(tree: Any) -> int:
    return sum(tensor.numel() for tensor in tensors(tree))
