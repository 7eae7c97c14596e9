"""What soft actor-critic (Haarnoja et al., 2018, arXiv:1812.05905) and its descendants share.

Shape letters: B batch, A action size.
"""

from __future__ import annotations

import abc
import math
from typing import ClassVar

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from torchzoo.model import Model
from torchzoo.networks.optimizers import adam


class Temperature(nn.Module):
    """The weight of the entropy, learned by its logarithm so that it stays positive."""

    def __init__(self, initial: float = 1.0) -> None:
        super().__init__()
        self.log_value = nn.Parameter(torch.full((), math.log(initial)))

    def forward(self) -> Tensor:
        return self.log_value.exp()


class SoftActorCritic(Model, abc.ABC):
    """What the algorithms share: the policy's actions, and the update of the temperature."""

    learning_rate: ClassVar[float]
    actor: nn.Module
    temperature: Temperature
    temperature_optimizer: torch.optim.Optimizer
    entropy_target: float

    def build_optimizer(self, *networks: nn.Module) -> torch.optim.Optimizer:
        """Adam at the learning rate that all networks have."""
        return adam(*networks, lr=self.learning_rate)

    def act(self, inputs: Tensor) -> tuple[Tensor, Tensor]:
        """Actions (B, A) drawn from the policy, and their log-densities (B,)."""
        mean, log_deviation = self.actor(inputs)
        return squashed_gaussian(mean, log_deviation, torch.randn_like(mean))

    def update_temperature(self, log_density: Tensor) -> None:
        """Equation 18: hotter while the policy's entropy is below its target."""
        self.temperature_optimizer.zero_grad()
        with self.autocast():
            loss = -(self.temperature() * (log_density + self.entropy_target)).mean()
        self.backward(loss)
        self.step(self.temperature_optimizer)


def layers(in_features: int, hidden_size: int, out_features: int) -> nn.Sequential:
    """Two hidden ReLU layers."""
    return nn.Sequential(
        nn.Linear(in_features, hidden_size),
        nn.ReLU(),
        nn.Linear(hidden_size, hidden_size),
        nn.ReLU(),
        nn.Linear(hidden_size, out_features),
    )


def squashed_gaussian(mean: Tensor, log_deviation: Tensor, noise: Tensor) -> tuple[Tensor, Tensor]:
    """Actions (B, A) in (-1, 1) and their log-densities (B,) for standard normal noise (B, A); the paper's appendix C.

    log(1 - tanh(u)^2) is computed as 2 (log 2 - u - softplus(-2 u)), which does not overflow.
    """
    unsquashed = mean + log_deviation.exp() * noise
    log_gaussian = -0.5 * noise.square() - log_deviation - 0.5 * math.log(2.0 * math.pi)
    log_slope = 2.0 * (math.log(2.0) - unsquashed - F.softplus(-2.0 * unsquashed))
    return torch.tanh(unsquashed), (log_gaussian - log_slope).sum(dim=-1)
