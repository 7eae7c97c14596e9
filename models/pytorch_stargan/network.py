"""The generator and discriminator of StarGAN (Choi et al., 2018, arXiv:1711.09020).

Shape letters: B batch, S side in pixels, D domains (attributes); comments give the shapes at S = 128 and width 64.
"""

from dataclasses import dataclass
from functools import partial
from itertools import pairwise

import torch
from torch import Tensor, nn


@dataclass(frozen=True, kw_only=True)
class GeneratorConfig:
    domains: int = 5  # hair black, blond or brown, male, young
    width: int = 64
    blocks: int = 6


@dataclass(frozen=True, kw_only=True)
class DiscriminatorConfig:
    image_size: int = 128
    domains: int = 5
    width: int = 64
    layers: int = 6
    negative_slope: float = 0.01


InstanceNorm = partial(nn.InstanceNorm2d, affine=True)


class Generator(nn.Module):
    """Images (B, 3, S, S) and target domains (B, D) to images (B, 3, S, S) in [-1, 1]."""

    def __init__(self, config: GeneratorConfig) -> None:
        super().__init__()
        width = config.width
        self.layers = nn.Sequential(
            *normalised(nn.Conv2d(3 + config.domains, width, 7, padding=3, bias=False)),  # (B, 64, 128, 128)
            *normalised(nn.Conv2d(width, 2 * width, 4, stride=2, padding=1, bias=False)),  # (B, 128, 64, 64)
            *normalised(nn.Conv2d(2 * width, 4 * width, 4, stride=2, padding=1, bias=False)),  # (B, 256, 32, 32)
            *(ResidualBlock(4 * width) for _ in range(config.blocks)),
            *normalised(nn.ConvTranspose2d(4 * width, 2 * width, 4, stride=2, padding=1, bias=False)),
            *normalised(nn.ConvTranspose2d(2 * width, width, 4, stride=2, padding=1, bias=False)),
            nn.Conv2d(width, 3, 7, padding=3, bias=False),
            nn.Tanh(),
        )

    def forward(self, images: Tensor, domains: Tensor) -> Tensor:
        maps = domains[:, :, None, None].expand(-1, -1, *images.shape[2:])
        translated: Tensor = self.layers(torch.cat([images, maps], dim=1))
        return translated


def normalised(convolution: nn.Conv2d | nn.ConvTranspose2d) -> tuple[nn.Module, ...]:
    return convolution, InstanceNorm(convolution.out_channels), nn.ReLU(inplace=True)


class ResidualBlock(nn.Module):
    def __init__(self, channels: int) -> None:
        super().__init__()
        self.residual = nn.Sequential(
            *normalised(nn.Conv2d(channels, channels, 3, padding=1, bias=False)),
            nn.Conv2d(channels, channels, 3, padding=1, bias=False),
            InstanceNorm(channels),
        )

    def forward(self, x: Tensor) -> Tensor:
        y: Tensor = x + self.residual(x)
        return y


class Discriminator(nn.Module):
    """Images (B, 3, S, S) to scores (B, 1, S/64, S/64) of their being real, and domain logits (B, D)."""

    def __init__(self, config: DiscriminatorConfig) -> None:
        super().__init__()
        widths = [3, *(config.width * 2**layer for layer in range(config.layers))]  # 64, 128, ... 2048
        self.features = nn.Sequential()
        for in_channels, out_channels in pairwise(widths):
            self.features.append(nn.Conv2d(in_channels, out_channels, 4, stride=2, padding=1))
            self.features.append(nn.LeakyReLU(config.negative_slope))
        side = config.image_size // 2**config.layers
        self.score = nn.Conv2d(widths[-1], 1, 3, padding=1, bias=False)
        self.classify = nn.Conv2d(widths[-1], config.domains, side, bias=False)

    def forward(self, images: Tensor) -> tuple[Tensor, Tensor]:
        features = self.features(images)  # (B, 2048, 2, 2)
        return self.score(features), self.classify(features).flatten(1)
