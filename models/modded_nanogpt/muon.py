"""Muon (Jordan et al., 2024, https://kellerjordan.github.io/posts/muon/) for matrices, Adam for the rest."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

#: Of the Newton-Schulz iteration: X becomes a X + (b A + c A A) X with A = X X^T.
COEFFICIENTS = (3.4445, -4.7750, 2.0315)
STEPS = 5


class MuonAdam(torch.optim.Optimizer):
    """Updates the groups that have `is_matrix` by Muon, the others by Adam. The last two dimensions are the matrix."""

    def __init__(self, groups: list[dict[str, Any]]) -> None:
        defaults = {"lr": 0.05, "momentum": 0.95, "betas": (0.8, 0.95), "eps": 1e-10, "is_matrix": False}
        super().__init__(groups, defaults)

    @torch.no_grad()
    def step(self, closure: Callable[[], float] | None = None) -> None:  # type: ignore[override]
        """Make one update. A closure is not supported."""
        for group in self.param_groups:
            parameters = [parameter for parameter in group["params"] if parameter.grad is not None]
            for parameter in parameters:
                if group["is_matrix"]:
                    self._muon(parameter, group)
                else:
                    self._adam(parameter, group)

    def _muon(self, parameter: Tensor, group: dict[str, Any]) -> None:
        state = self.state[parameter]
        if not state:
            state["momentum"] = torch.zeros_like(parameter)
        assert parameter.grad is not None
        state["momentum"].lerp_(parameter.grad, 1 - group["momentum"])
        update = orthogonalised(parameter.grad.lerp(state["momentum"], group["momentum"]))  # Nesterov's
        rows, columns = parameter.shape[-2:]
        parameter.add_(update.to(parameter.dtype), alpha=-group["lr"] * max(1.0, rows / columns) ** 0.5)

    def _adam(self, parameter: Tensor, group: dict[str, Any]) -> None:
        state = self.state[parameter]
        if not state:
            state["updates"] = torch.zeros((), device=parameter.device)
            state["mean"] = torch.zeros_like(parameter)
            state["square"] = torch.zeros_like(parameter)
        assert parameter.grad is not None
        mean_decay, square_decay = group["betas"]
        state["updates"] += 1
        state["mean"].lerp_(parameter.grad, 1 - mean_decay)
        state["square"].mul_(square_decay).addcmul_(parameter.grad, parameter.grad, value=1 - square_decay)
        mean_bias, square_bias = 1 - mean_decay ** state["updates"], 1 - square_decay ** state["updates"]
        step_size = group["lr"] * square_bias.sqrt() / mean_bias
        parameter.sub_(state["mean"] / (state["square"].sqrt() + group["eps"]) * step_size)


def orthogonalised(matrices: Tensor) -> Tensor:
    """Matrices (..., R, C) to ones with about the same singular vectors, and singular values near 1.

    As published, this is computed in bfloat16 (of float64 matrices, in float64).
    """
    a, b, c = COEFFICIENTS
    x = matrices if matrices.dtype is torch.float64 else matrices.bfloat16()
    is_tall = x.shape[-2] > x.shape[-1]
    x = x.mT if is_tall else x
    x = x / (x.norm(dim=(-2, -1), keepdim=True) + 1e-7)  # no singular value is above 1
    for _ in range(STEPS):
        gram = x @ x.mT
        x = a * x + (b * gram + c * gram @ gram) @ x
    return x.mT if is_tall else x
