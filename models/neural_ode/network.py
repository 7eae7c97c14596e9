"""The ODE-Net of Neural Ordinary Differential Equations (Chen et al., 2018, arXiv:1806.07366).

Shape letters: B batch, C channels.
"""

import torch
from torch import Tensor, nn
from torchdiffeq import odeint_adjoint


class ODENet(nn.Module):
    """Images (B, 1, 28, 28) to logits (B, classes): convolutions, an ODE from time 0 to time 1, pooling."""

    def __init__(self, *, channels: int, classes: int, steps: int) -> None:
        super().__init__()
        self.downsample = nn.Sequential(
            nn.Conv2d(1, channels, 3),
            norm(channels),
            nn.ReLU(),
            nn.Conv2d(channels, channels, 4, stride=2, padding=1),
            norm(channels),
            nn.ReLU(),
            nn.Conv2d(channels, channels, 4, stride=2, padding=1),
        )
        self.dynamics = Dynamics(channels)
        self.head = nn.Sequential(
            norm(channels), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(channels, classes)
        )
        self.register_buffer("times", torch.linspace(0, 1, steps + 1), persistent=False)

    times: Tensor

    def forward(self, images: Tensor) -> Tensor:
        states = odeint_adjoint(self.dynamics, self.downsample(images), self.times, method="rk4")
        logits: Tensor = self.head(states[-1])
        return logits


class Dynamics(nn.Module):
    """The derivative of a state (B, C, 6, 6) with respect to time."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.norms = nn.ModuleList(norm(channels) for _ in range(3))
        self.convs = nn.ModuleList(nn.Conv2d(channels + 1, channels, 3, padding=1) for _ in range(2))

    def forward(self, time: Tensor, state: Tensor) -> Tensor:
        x = state
        for layer_norm, conv in zip(self.norms, self.convs, strict=False):  # the third norm comes last
            x = layer_norm(x).relu()
            x = conv(torch.cat([time.expand_as(x[:, :1]), x], dim=1))
        derivative: Tensor = self.norms[2](x)
        return derivative


def norm(channels: int) -> nn.GroupNorm:
    return nn.GroupNorm(min(32, channels), channels)
