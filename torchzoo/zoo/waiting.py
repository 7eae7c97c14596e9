"""Find the operators of a step that make it wait for the device. Importing this module imports torch."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor
from torch.optim.optimizer import register_optimizer_step_post_hook, register_optimizer_step_pre_hook

from torchzoo.model.dispatch import OperatorMode
from torchzoo.model.tensors import tensors_in

#: Operators with a result whose size or value the host must know, for which a step on a GPU waits.
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
        "aten::_coalesce",  # counts the different indices of a sparse tensor
        "torchvision::nms",
        "aten::_ctc_loss",  # on CUDA, copies the lengths from the host
        "aten::_fused_moving_avg_obs_fq_helper",  # on CUDA, reads its switch and checks zero points on the host
    }
)
#: Operators that wait if an index is a mask.
INDEXING = frozenset({"aten::index", "aten::index_put", "aten::index_put_", "aten::_index_put_impl_"})
#: Waits unless all operands are bfloat16: for other dtypes CUDA has no kernel, and the host reads the groups' ends.
GROUPED_PRODUCT = "aten::_grouped_mm"
#: Higher-order operators whose predicate the host reads, to choose a branch or leave a loop.
PREDICATES = frozenset({"cond", "switch", "while_loop", "while_loop_stack_output"})


class SynchronisingOperators(OperatorMode):
    """A mode that collects the names of the operators that would make a GPU step wait.

    On the CPU, numbers that an optimizer reads are left out: its step counters are CPU tensors on a GPU, too, where
    reading them takes no wait. On a GPU, operators on CPU tensors alone are left out.
    """

    def __init__(self, device: torch.device | None = None) -> None:
        super().__init__()
        self.on_gpu = device is not None and device.type != "cpu"
        self.seen: set[str] = set()
        self.in_optimizer = False

    def see(self, func: Any, args: Any, kwargs: Any) -> Any:
        name = func._schema.name
        of_host = self._is_of_host(args)
        if not of_host and not (self.in_optimizer and name == "aten::_local_scalar_dense"):
            if name in SYNCHRONISING or f"{name}.{func._overloadname}" in SYNCHRONISING:
                self.seen.add(name)
            if name in INDEXING and any(is_mask(index) for index in args[1]):
                self.seen.add(f"{name} by a mask")
            if name in INDEXING and self.on_gpu and any(tensor.device.type == "cpu" for tensor in tensors_in(args[1])):
                self.seen.add(f"{name} by a CPU tensor")
            if name == GROUPED_PRODUCT and any(operand.dtype is not torch.bfloat16 for operand in args[:2]):
                self.seen.add(name)
        return func(*args, **kwargs)

    def see_higher_order(self, func: Any, args: Any, kwargs: Any) -> Any:
        name = str(func)
        if name in PREDICATES and not self._is_of_host(args[0] if name == "cond" else args):
            self.seen.add(f"the predicate of {name}")
        return super().see_higher_order(func, args, kwargs)

    def _is_of_host(self, operands: Any) -> bool:
        return self.on_gpu and all(tensor.device.type == "cpu" for tensor in tensors_in(operands))


def is_mask(index: Any) -> bool:
    """Whether an index is a mask of true and false."""
    return isinstance(index, Tensor) and index.dtype in (torch.bool, torch.uint8)


@contextmanager
def synchronising_operators(device: torch.device | None = None) -> Iterator[set[str]]:
    """The names of the operators in the context that wait. Without a device: the CPU."""
    mode = SynchronisingOperators(device)

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
