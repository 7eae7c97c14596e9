"""Keep what a model's steps may change as it is before the first step, and restore it in place.

The state is all that can be reached from the model's attributes: weights, buffers, caches, data, counters, the state of
optimizers, random generators. Tensors and containers stay the same objects, so that compiled code, its guards and CUDA
graphs remain valid. State elsewhere, such as in a global variable or a closure, is not restored. So the check compares
a step after `restore` with a step of a new model. The numbers are kept in a file: in memory they would count as memory
of the measured model.
"""

from __future__ import annotations

import os
import shutil
import sys
import tempfile
from collections import deque
from collections.abc import Iterable
from typing import Any

import torch
from torch import Tensor, nn

from torchzoo.backends import SCRATCH_VARIABLE
from torchzoo.case import Mode
from torchzoo.model import Model

#: The state may take at most this part of the free space of the disk.
_SHARE_OF_DISK = 0.5

#: PyTorch's classes whose objects have attributes that steps change.
_OF_TORCH = (nn.Module, torch.optim.Optimizer, torch.optim.lr_scheduler.LRScheduler, torch.amp.GradScaler)


class CanNotRestore(Exception):
    """The state can't be kept or restored; the message says why."""


class StartState:
    """The state of a model at construction. Parameters are kept in training only: no other step changes them.

    Raises:
        CanNotRestore: the disk has too little space, or a tensor is of a kind that can't be kept.
    """

    def __init__(self, model: Model) -> None:
        self._keeps_parameters = model.mode is Mode.TRAIN
        self._seen: dict[int, Any] = {}  # visited objects by id; holding them keeps the ids unique
        self._tensors: list[tuple[Tensor, torch.Size]] = []  # in the order of their numbers in the file
        self._gradients: list[tuple[Tensor, Tensor | None]] = []
        self._containers: list[tuple[Any, Any]] = []  # containers and copies of their contents
        self._generators: list[tuple[torch.Generator, Tensor]] = []
        folder = os.environ.get(SCRATCH_VARIABLE) or tempfile.gettempdir()
        self._left_bytes = _SHARE_OF_DISK * shutil.disk_usage(folder).free
        self._file = tempfile.TemporaryFile(dir=folder)  # noqa: SIM115  closed and removed with this object
        todo: list[Any] = [model]
        while todo:
            value = todo.pop()
            if id(value) not in self._seen:
                self._seen[id(value)] = value
                todo += self._visit(value)

    def restore(self) -> None:
        """Restore the state in place.

        Raises:
            CanNotRestore: a tensor has another shape now.
        """
        for container, before in self._containers:
            _restore_container(container, before)
        for parameter, gradient in self._gradients:
            parameter.grad = gradient
        for generator, state in self._generators:
            generator.set_state(state)
        self._file.seek(0)
        for tensor, shape in self._tensors:
            numbers = bytearray(self._file.read(shape.numel() * tensor.itemsize))
            if tensor.shape != shape:
                raise CanNotRestore(f"a step changes the shape of a tensor of {tuple(shape)}")
            with torch.inference_mode() if tensor.is_inference() else torch.no_grad():
                tensor.copy_(torch.frombuffer(numbers, dtype=tensor.dtype).view(shape))

    def _visit(self, value: Any) -> Iterable[Any]:
        """Keep one object, and return the objects that it holds."""
        if isinstance(value, Tensor):
            self._keep(value)
            return ()
        if isinstance(value, torch.Generator):
            self._generators.append((value, value.get_state()))
            return ()
        if isinstance(value, dict):
            self._containers.append((value, dict(value)))
            return list(value.values())
        if isinstance(value, list | deque | set):
            self._containers.append((value, list(value)))
            return list(value)
        if isinstance(value, tuple | frozenset):
            return value
        return (vars(value),) if _has_state(value) else ()

    def _keep(self, tensor: Tensor) -> None:
        if isinstance(tensor, nn.Parameter):
            self._gradients.append((tensor, tensor.grad))
            if not self._keeps_parameters:
                return
        self._left_bytes -= tensor.nbytes
        if self._left_bytes < 0:
            raise CanNotRestore("the disk has too little room for the model's state before its first step")
        if type(tensor) not in (Tensor, nn.Parameter, nn.Buffer) or tensor.layout is not torch.strided:
            raise CanNotRestore(f"it has a {type(tensor).__name__} of layout {tensor.layout}, which can't be kept")
        if tensor.numel():
            numbers = tensor.detach().to("cpu", copy=True).contiguous().view(-1).view(torch.uint8)
            numbers.numpy().tofile(self._file)
            self._tensors.append((tensor, tensor.shape))


def _has_state(value: Any) -> bool:
    """Whether steps may change an object's attributes: few classes of PyTorch and none of the standard library."""
    if isinstance(value, _OF_TORCH):
        return True
    package = type(value).__module__.partition(".")[0]
    is_plain = not isinstance(value, type) and hasattr(value, "__dict__")
    return is_plain and package not in ("torch", "numpy") and package not in sys.stdlib_module_names


def _restore_container(container: Any, before: Any) -> None:
    """Restore the contents of a container. Entries that are unchanged are not set again, so that guards stay valid."""
    if isinstance(container, dict):
        for key in [key for key in container if key not in before]:
            del container[key]
        for key, value in before.items():
            if key not in container or container[key] is not value:
                container[key] = value
    elif isinstance(container, list):
        container[:] = before
    else:
        container.clear()
        (container.update if isinstance(container, set) else container.extend)(before)
