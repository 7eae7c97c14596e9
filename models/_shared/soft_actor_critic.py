"""What soft actor-critic (Haarnoja et al., 2018, arXiv:1812.05905) and its descendants share.

Shape letters: B batch, A action size.
"""

from __future__ import annotations

import abc
import math
from typing import ClassVar

import torch
from torch import Tensor, nn
from torch.distributions import Distribution, Normal, TanhTransform, TransformedDistribution

from torchzoo.model import Model

from .optimizers import adam


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
        policy = squashed_gaussian(*self.actor(inputs))
        action = policy.rsample()
        return action, policy.log_prob(action).sum(dim=-1)

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


def squashed_gaussian(mean: Tensor, log_deviation: Tensor) -> Distribution:
    """A policy over actions (B, A) in (-1, 1): the tanh of a Gaussian with this mean and log-deviation, (B, A) each.

    The transform remembers the last sample before its tanh: the density of that sample needs no inverse of tanh.
    """
    return TransformedDistribution(Normal(mean, log_deviation.exp()), TanhTransform(cache_size=1))
