"""The context-switching matting network of Background Matting (Sengupta et al., 2020, arXiv:2004.00626).

Shape letters: B batch, C channels, S side in pixels; comments give the shapes at the default width of 64. Images are in
[-1, 1], alpha too.
"""

from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor, nn

from .._shared.image_translation import ReflectedResidualBlock


@dataclass(frozen=True, kw_only=True)
class Config:
    image_channels: int = 3
    segmentation_channels: int = 1
    motion_channels: int = 4  # grey neighbours in time
    width: int = 64
    context_width: int = 64  # features that each cue adds to the image's
    shared_blocks: int = 7
    head_blocks: int = 3


class View(NamedTuple):
    """What is known of a photograph."""

    image: Tensor  # (B, 3, S, S)
    background: Tensor  # (B, 3, S, S) the scene without the person
    segmentation: Tensor  # (B, 1, S, S) roughly where the person is
    motion: Tensor  # (B, 4, S, S)


class Matte(NamedTuple):
    alpha: Tensor  # (B, 1, S, S)
    foreground: Tensor  # (B, 3, S, S)


class MattingNetwork(nn.Module):
    """A `View`'s four tensors to its `Matte`."""

    def __init__(self, config: Config) -> None:
        super().__init__()
        width, deep = config.width, 4 * config.width
        self.image_stem = stem(config.image_channels, width)
        self.image_encoder = normalised(nn.Conv2d(2 * width, deep, 3, stride=2, padding=1))
        self.background_encoder = encoder(config.image_channels, width)
        self.segmentation_encoder = encoder(config.segmentation_channels, width)
        self.motion_encoder = encoder(config.motion_channels, width)
        self.background_selector = selector(2 * deep, config.context_width)
        self.segmentation_selector = selector(2 * deep, config.context_width)
        self.motion_selector = selector(2 * deep, config.context_width)
        self.shared = nn.Sequential(
            selector(deep + 3 * config.context_width, deep), *residual_blocks(deep, config.shared_blocks)
        )
        self.alpha = nn.Sequential(
            *residual_blocks(deep, config.head_blocks),
            upsample(deep, 2 * width),  # (B, 128, S/2, S/2)
            upsample(2 * width, width),  # (B, 64, S, S)
            nn.ReflectionPad2d(3),
            nn.Conv2d(width, 1, 7),
            nn.Tanh(),
        )
        self.foreground = nn.Sequential(*residual_blocks(deep, config.head_blocks), upsample(deep, 2 * width))
        self.foreground_output = nn.Sequential(
            upsample(4 * width, width), nn.ReflectionPad2d(3), nn.Conv2d(width, config.image_channels, 7)
        )

    def forward(self, image: Tensor, background: Tensor, segmentation: Tensor, motion: Tensor) -> Matte:
        fine = self.image_stem(image)  # (B, 128, S/2, S/2)
        features = self.image_encoder(fine)  # (B, 256, S/4, S/4)
        contexts = [  # (B, 64, S/4, S/4) each
            self.background_selector(torch.cat([features, self.background_encoder(background)], dim=1)),
            self.segmentation_selector(torch.cat([features, self.segmentation_encoder(segmentation)], dim=1)),
            self.motion_selector(torch.cat([features, self.motion_encoder(motion)], dim=1)),
        ]
        x = self.shared(torch.cat([features, *contexts], dim=1))
        foreground = self.foreground_output(torch.cat([self.foreground(x), fine], dim=1))
        return Matte(self.alpha(x), foreground)


class Teacher(nn.Module):
    """A frozen network that is always evaluated with its running statistics, also where others train."""

    def __init__(self, network: nn.Module) -> None:
        super().__init__()
        self.network = network.requires_grad_(requires_grad=False)

    def train(self, mode: bool = True) -> "Teacher":  # noqa: FBT001, FBT002  as nn.Module has it
        super().train(mode)
        self.network.eval()
        return self

    @torch.no_grad()
    def forward(self, image: Tensor, background: Tensor, segmentation: Tensor, motion: Tensor) -> Matte:
        matte: Matte = self.network(image, background, segmentation, motion)
        return matte


def stem(in_channels: int, width: int) -> nn.Sequential:
    """(B, C, S, S) to (B, 2 width, S/2, S/2)."""
    return nn.Sequential(
        nn.ReflectionPad2d(3),
        normalised(nn.Conv2d(in_channels, width, 7)),
        normalised(nn.Conv2d(width, 2 * width, 3, stride=2, padding=1)),
    )


def encoder(in_channels: int, width: int) -> nn.Sequential:
    """(B, C, S, S) to (B, 4 width, S/4, S/4)."""
    return nn.Sequential(stem(in_channels, width), normalised(nn.Conv2d(2 * width, 4 * width, 3, stride=2, padding=1)))


def selector(in_channels: int, out_channels: int) -> nn.Sequential:
    return normalised(nn.Conv2d(in_channels, out_channels, 1, bias=False))


def residual_blocks(channels: int, count: int) -> list[nn.Module]:
    return [ReflectedResidualBlock(channels, nn.BatchNorm2d) for _ in range(count)]


def upsample(in_channels: int, out_channels: int) -> nn.Sequential:
    return nn.Sequential(
        nn.Upsample(scale_factor=2, mode="bilinear", align_corners=True),
        normalised(nn.Conv2d(in_channels, out_channels, 3, padding=1)),
    )


def normalised(convolution: nn.Conv2d) -> nn.Sequential:
    return nn.Sequential(convolution, nn.BatchNorm2d(convolution.out_channels), nn.ReLU(inplace=True))


def initialise(module: nn.Module) -> None:
    """Xavier's uniform weights for ReLU, in batch normalisation around a scale of 1."""
    if isinstance(module, nn.Conv2d):
        nn.init.xavier_uniform_(module.weight, gain=2**0.5)
        if module.bias is not None:
            nn.init.zeros_(module.bias)
    elif isinstance(module, nn.BatchNorm2d):
        nn.init.normal_(module.weight, 1.0, 0.2)
