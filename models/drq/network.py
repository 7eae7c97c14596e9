"""The encoder, the policy and the soft Q-functions of DrQ (Kostrikov, Yarats and Fergus, 2020, arXiv:2004.13649).

Shape letters: B batch, F features of the convolutions, A action size, H hidden size.
"""

import math
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from .._shared.soft_actor_critic import layers


@dataclass(frozen=True, kw_only=True)
class Config:
    """The observations and what the networks share."""

    frames: int = 3  # of one observation
    colours: int = 3
    image_size: int = 84
    episode_length: int = 125  # 1000 steps of the environment, an action repeated for 8 of them
    max_shift: int = 4  # pixels
    action_size: int = 1
    filters: int = 32
    encoder_size: int = 32 * 35 * 35
    feature_size: int = 50  # what actor and critic each make of the encoder's features
    hidden_size: int = 1024
    min_log_deviation: float = -10.0
    max_log_deviation: float = 2.0


class Encoder(nn.Module):
    """Observations (B, 9, 84, 84) of bytes to features (B, F)."""

    def __init__(self, config: Config) -> None:
        super().__init__()
        filters = config.filters
        self.layers = nn.Sequential(
            nn.Conv2d(config.frames * config.colours, filters, 3, stride=2),  # (B, 32, 41, 41)
            nn.ReLU(),
            nn.Conv2d(filters, filters, 3),  # (B, 32, 39, 39)
            nn.ReLU(),
            nn.Conv2d(filters, filters, 3),  # (B, 32, 37, 37)
            nn.ReLU(),
            nn.Conv2d(filters, filters, 3),  # (B, 32, 35, 35)
            nn.ReLU(),
            nn.Flatten(),
        )
        self.apply(initialise)

    def forward(self, observation: Tensor) -> Tensor:
        dtype = next(self.parameters()).dtype
        features: Tensor = self.layers(observation.to(dtype) / 255.0)
        return features


class Actor(nn.Module):
    """Features (B, F) to the mean and the log-deviation, (B, A) each, of a Gaussian over unsquashed actions."""

    def __init__(self, config: Config) -> None:
        super().__init__()
        self.config = config
        self.project = projection(config)
        self.layers = layers(config.feature_size, config.hidden_size, 2 * config.action_size)
        self.apply(initialise)

    def forward(self, features: Tensor) -> tuple[Tensor, Tensor]:
        mean, log_deviation = self.layers(self.project(features)).chunk(2, dim=-1)
        low, high = self.config.min_log_deviation, self.config.max_log_deviation
        return mean, low + 0.5 * (high - low) * (log_deviation.tanh() + 1.0)


class Critic(nn.Module):
    """Features (B, F) and actions (B, A) in (-1, 1) to the soft Q-values (B,) of two functions."""

    def __init__(self, config: Config) -> None:
        super().__init__()
        self.project = projection(config)
        self.value1 = layers(config.feature_size + config.action_size, config.hidden_size, 1)
        self.value2 = layers(config.feature_size + config.action_size, config.hidden_size, 1)
        self.apply(initialise)

    def forward(self, features: Tensor, action: Tensor) -> tuple[Tensor, Tensor]:
        inputs = torch.cat([self.project(features), action], dim=-1)
        return self.value1(inputs).squeeze(-1), self.value2(inputs).squeeze(-1)


def projection(config: Config) -> nn.Sequential:
    return nn.Sequential(
        nn.Linear(config.encoder_size, config.feature_size), nn.LayerNorm(config.feature_size), nn.Tanh()
    )


def initialise(module: nn.Module) -> None:
    """The authors' orthogonal weights, in convolutions scaled for ReLU; no biases at first."""
    if isinstance(module, nn.Linear | nn.Conv2d):
        nn.init.orthogonal_(module.weight, math.sqrt(2.0) if isinstance(module, nn.Conv2d) else 1.0)
        assert module.bias is not None
        nn.init.zeros_(module.bias)
