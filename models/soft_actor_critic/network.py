"""The policy and the soft Q-functions of SAC (Haarnoja et al., 2018, arXiv:1812.05905).

Shape letters: B batch, S state size, A action size, H hidden size.
"""

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from .._shared.soft_actor_critic import layers


@dataclass(frozen=True, kw_only=True)
class Config:
    """What actor and critic share."""

    state_size: int = 3
    action_size: int = 1
    hidden_size: int = 1024
    min_log_deviation: float = -20.0
    max_log_deviation: float = 2.0


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
