"""Activations in the host's memory: a way to run a step at fp64 that the device has too little memory for."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

import torch
from torch import Tensor

from torchzoo.machine.limits import available_bytes
from torchzoo.model.tensors import stored_bytes

#: Smaller tensors stay on the device: moving them costs more time than they take memory.
SMALLEST_BYTES = 2**20

#: So much of the host's memory stays free for everything else.
LEFT_FREE_BYTES = 16 * 2**30


@contextlib.contextmanager
def activations_on_host() -> Iterator[None]:
    """Let autograd keep in the host's memory what the backward pass reads. Numbers do not change.

    `torch.autograd.graph.save_on_cpu` does so with every tensor, parameters too, until the host's memory is full: then
    the kernel ends the process. This leaves some memory free. The step raises MemoryError where the host has too little
    of it, and RuntimeError where it uses `torch.func`.
    """

    def keep(tensor: Tensor) -> tuple[torch.device, Tensor]:
        size = stored_bytes(tensor)
        if size < SMALLEST_BYTES or (tensor.is_leaf and tensor.requires_grad):
            return tensor.device, tensor.detach()
        if available_bytes() < size + LEFT_FREE_BYTES:
            raise MemoryError("the host has too little memory for what the backward pass reads")
        return tensor.device, tensor.detach().to("cpu", copy=True)

    def read(kept: tuple[torch.device, Tensor]) -> Tensor:
        device, tensor = kept
        return tensor.to(device)

    with torch.autograd.graph.saved_tensors_hooks(keep, read):
        yield
