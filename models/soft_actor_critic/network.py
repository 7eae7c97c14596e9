"""The policy, the soft Q-functions and the temperature of SAC (Haarnoja et al., 2018, arXiv:1812.05905).

Shape letters: B batch, S state size, A action size, H hidden size.
"""

import math
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional as F


@dataclass(frozen=True, kw_only=True)
class Config:
    """What actor and critic share."""

    state_size: int = 3
    action_size: int = 1
    hidden_size: int = 1024
    min_log_deviation: float = -20.0
    max_log_deviation: float = 2.0


def layers(in_features: int, hidden_size: int, out_features: int) -> nn.Sequential:
    """Two hidden ReLU layers."""
    return nn.Sequential(
        nn.Linear(in_features, hidden_size),
        nn.ReLU(),
        nn.Linear(hidden_size, hidden_size),
        nn.ReLU(),
        nn.Linear(hidden_size, out_features),
    )


class Actor(nn.Module):
    """States (B, S) to the mean and the log-deviation, (B, A) each, of a Gaussian over unsquashed actions."""

    def __init__(self, config: Config) -> None:
        super().__init__()
        self.config = config
        self.layers = layers(config.state_size, config.hidden_size, 2 * config.action_size)

    def forward(self, state: Tensor) -> tuple[Tensor, Tensor]:
        mean, log_deviation = self.layers(state).chunk(2, dim=-1)
        return mean, log_deviation.clamp(self.config.min_log_deviation, self.config.max_log_deviation)


class Critic(nn.Module):
    """States (B, S) and actions (B, A) in (-1, 1) to soft Q-values (B,)."""

    def __init__(self, config: Config) -> None:
        super().__init__()
        self.layers = layers(config.state_size + config.action_size, config.hidden_size, 1)

    def forward(self, state: Tensor, action: Tensor) -> Tensor:
        value: Tensor = self.layers(torch.cat([state, action], dim=-1))
        return value.squeeze(-1)


class Temperature(nn.Module):
    """The weight of the entropy, learned by its logarithm so that it stays positive; 1 at first."""

    def __init__(self) -> None:
        super().__init__()
        self.log_value = nn.Parameter(torch.zeros(()))

    def forward(self) -> Tensor:
        return self.log_value.exp()


def squashed_gaussian(mean: Tensor, log_deviation: Tensor, noise: Tensor) -> tuple[Tensor, Tensor]:
    """Actions (B, A) in (-1, 1) and their log-densities (B,) for standard normal noise (B, A); the paper's appendix C.

    log(1 - tanh(u)^2) is computed as 2 (log 2 - u - softplus(-2 u)), which does not overflow.
    """
    unsquashed = mean + log_deviation.exp() * noise
    log_gaussian = -0.5 * noise.square() - log_deviation - 0.5 * math.log(2.0 * math.pi)
    log_slope = 2.0 * (math.log(2.0) - unsquashed - F.softplus(-2.0 * unsquashed))
    return torch.tanh(unsquashed), (log_gaussian - log_slope).sum(dim=-1)
