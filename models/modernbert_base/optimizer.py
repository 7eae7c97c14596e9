"""StableAdamW (Wortsman et al., 2023, arXiv:2304.13013, section 3.5)."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch import Tensor


class StableAdamW(torch.optim.Optimizer):
    """AdamW that takes smaller steps where the second moment lags behind the gradient, as Adafactor does.

    A tensor's learning rate is divided by the root mean square of gradient / sqrt(second moment), if that is above 1.
    Instead of the moments, their decay rates are corrected for the number of steps. Weights shrink by `weight_decay` in
    each step, whatever the learning rate is (ModernBERT's choice).

    Args:
        groups: parameters, as of other optimizers: dicts of `params` and `weight_decay`.
    """

    def __init__(self, groups: Iterable[dict[str, Any]], *, lr: float, betas: tuple[float, float], eps: float) -> None:
        super().__init__(groups, {"lr": lr, "betas": betas, "eps": eps, "weight_decay": 0.0})

    def _start(self, group: dict[str, Any]) -> None:
        """Make the moments, in the dtype that the parameters have by now."""
        parameters: list[Tensor] = group["params"]
        device = parameters[0].device
        sizes = [parameter.numel() for parameter in parameters]
        group["step"] = torch.zeros((), device=device)
        group["root_sizes"] = torch.tensor(sizes, dtype=torch.float32, device=device).sqrt()
        for parameter in parameters:
            self.state[parameter] = {"first": torch.zeros_like(parameter), "second": torch.zeros_like(parameter)}

    @torch.no_grad()
    def step(self, closure: Callable[[], Any] | None = None) -> None:  # type: ignore[override]
        """Make one update. All parameters need gradients."""
        assert closure is None
        for group in self.param_groups:
            self._update(group)

    def _update(self, group: dict[str, Any]) -> None:
        if "step" not in group:
            self._start(group)
        parameters: list[Tensor] = group["params"]
        gradients = [parameter.grad for parameter in parameters if parameter.grad is not None]
        first = [self.state[parameter]["first"] for parameter in parameters]
        second = [self.state[parameter]["second"] for parameter in parameters]
        group["step"] += 1
        decay_first, decay_second = (corrected(beta, group["step"]) for beta in group["betas"])

        _decay(first, gradients, decay_first)
        _decay(second, torch._foreach_mul(gradients, gradients), decay_second)

        at_least = torch._foreach_clamp_min(second, group["eps"] ** 2)
        torch._foreach_sqrt_(at_least)
        norms = torch._foreach_norm(torch._foreach_div(gradients, at_least))
        excess = (torch.stack(norms) / group["root_sizes"]).clamp(min=1.0)  # one of each tensor
        rates = (-group["lr"] / excess).unbind()

        roots = torch._foreach_sqrt(second)
        torch._foreach_add_(roots, group["eps"])
        updates = torch._foreach_div(first, roots)
        torch._foreach_mul_(updates, rates)
        torch._foreach_mul_(parameters, 1.0 - group["weight_decay"])
        torch._foreach_add_(parameters, updates)


def corrected(beta: float, step: Tensor) -> Tensor:
    """The decay rate of a mean of `step` values, all of which weigh as if the first one had no zero before it."""
    return beta * (1.0 - beta ** (step - 1)) / (1.0 - beta**step)


def _decay(means: list[Tensor], values: Any, rate: Tensor) -> None:
    """means = rate means + (1 - rate) values."""
    torch._foreach_mul_(means, rate)
    torch._foreach_add_(means, torch._foreach_mul(values, 1.0 - rate))
