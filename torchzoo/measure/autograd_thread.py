"""The thread in which PyTorch runs the backward pass of a device."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor


class AutogradThread:
    """Runs functions in the thread of PyTorch's autograd engine that belongs to this device.

    The engine has one such thread for each accelerator. On the CPU it works in the thread that calls.
    """

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self._leaf: Tensor | None = None  # made when it is needed first: only then is the device in use

    def __call__(self, do: Callable[[], Any]) -> Any:
        """Run a function there, and return what it returns. No kernel is launched, but for the first time."""
        if self._leaf is None:
            self._leaf = torch.zeros((), device=self._device, requires_grad=True)
        results: list[Any] = []
        with torch.enable_grad():
            output = _CallInBackward.apply(self._leaf, lambda: results.append(do()))
            torch.autograd.grad(output, self._leaf, grad_outputs=self._leaf.detach())
        return results[0]


class _CallInBackward(torch.autograd.Function):
    """The identity, with a function that its backward pass calls."""

    @staticmethod
    def forward(ctx: Any, leaf: Tensor, do: Callable[[], None]) -> Tensor:
        ctx.do = do
        return leaf.view_as(leaf)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None]:
        ctx.do()
        return gradients[0], None
