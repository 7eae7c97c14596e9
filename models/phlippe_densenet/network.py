"""DenseNet with bottlenecks and compression (Huang et al., 2016, arXiv:1608.06993), small enough for CIFAR.

Every layer adds `growth` channels to all that came before it; between dense blocks a transition halves channels and
image. Shape letters: B batch, C channels, S image side, G growth, K classes.
"""

from dataclasses import dataclass

import torch
from torch import Tensor, nn


@dataclass(frozen=True, kw_only=True)
class Config:
    blocks: int = 4
    layers: int = 6  # of each dense block
    growth: int = 16
    bottleneck: int = 2  # width before a layer's 3 x 3 convolution, over its growth
    classes: int = 10


class DenseLayer(nn.Module):
    """(B, C, S, S) to (B, C + G, S, S)."""

    def __init__(self, channels: int, config: Config) -> None:
        super().__init__()
        width = config.bottleneck * config.growth
        self.layers = nn.Sequential(
            nn.BatchNorm2d(channels),
            nn.ReLU(inplace=True),
            nn.Conv2d(channels, width, 1, bias=False),
            nn.BatchNorm2d(width),
            nn.ReLU(inplace=True),
            nn.Conv2d(width, config.growth, 3, padding=1, bias=False),
        )

    def forward(self, x: Tensor) -> Tensor:
        return torch.cat([self.layers(x), x], dim=1)


class DenseNet(nn.Module):
    """Images (B, 3, 32, 32) to logits (B, K)."""

    def __init__(self, config: Config) -> None:
        super().__init__()
        channels = config.bottleneck * config.growth
        layers: list[nn.Module] = [nn.Conv2d(3, channels, 3, padding=1)]  # (B, 32, 32, 32)
        for block in range(config.blocks):  # (B, 128, 32, 32), (B, 160, 16, 16), (B, 176, 8, 8), (B, 184, 4, 4)
            if block > 0:
                layers += self.transition(channels)
                channels //= 2
            for _ in range(config.layers):
                layers.append(DenseLayer(channels, config))
                channels += config.growth
        layers += [nn.BatchNorm2d(channels), nn.ReLU(inplace=True)]
        layers += [nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(channels, config.classes)]
        self.layers = nn.Sequential(*layers)
        self.apply(initialise)

    @staticmethod
    def transition(channels: int) -> tuple[nn.Module, ...]:
        """(B, C, S, S) to (B, C / 2, S / 2, S / 2)."""
        return (
            nn.BatchNorm2d(channels),
            nn.ReLU(inplace=True),
            nn.Conv2d(channels, channels // 2, 1, bias=False),
            nn.AvgPool2d(2),
        )

    def forward(self, images: Tensor) -> Tensor:
        logits: Tensor = self.layers(images)
        return logits


def initialise(module: nn.Module) -> None:
    if isinstance(module, nn.Conv2d):
        nn.init.kaiming_normal_(module.weight, nonlinearity="relu")
