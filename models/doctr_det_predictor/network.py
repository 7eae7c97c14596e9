"""DBNet (Liao et al., 2019, arXiv:1911.08947) in docTR's form: no deformable convolutions, bilinear up-sampling.

Shape letters: B batch, C channels, H and W of the page; (h, w) is a quarter of it.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
import torchvision
from torch import Tensor, nn


@dataclass(frozen=True, kw_only=True)
class Config:
    stage_channels: tuple[int, ...] = (256, 512, 1024, 2048)  # of ResNet-50
    channels: int = 256  # of the pyramid


class DBNet(nn.Module):
    """Pages (B, 3, H, W) to the probability (B, 1, H, W) that a pixel lies in the middle of a word.

    In training it is left as logits, and the logits of the binarization thresholds (B, 1, H, W) come with it.
    """

    def __init__(self, config: Config) -> None:
        super().__init__()
        self.backbone = Backbone()
        self.pyramid = FeaturePyramid(config)
        self.probability_head = head(config.channels)
        self.threshold_head = head(config.channels)
        for part in (self.pyramid, self.probability_head, self.threshold_head):
            part.apply(initialise)

    def forward(self, pages: Tensor) -> Tensor | tuple[Tensor, Tensor]:
        features = self.pyramid(self.backbone(pages))  # (B, C, h, w)
        logits: Tensor = self.probability_head(features)
        if self.training:
            return logits, self.threshold_head(features)
        return logits.sigmoid()


class Backbone(nn.Module):
    """The feature maps of ResNet-50's four stages, at 1/4, 1/8, 1/16 and 1/32 of the page."""

    def __init__(self) -> None:
        super().__init__()
        resnet = torchvision.models.resnet50()
        self.stem = nn.Sequential(resnet.conv1, resnet.bn1, resnet.relu, resnet.maxpool)
        self.stages = nn.ModuleList([resnet.layer1, resnet.layer2, resnet.layer3, resnet.layer4])

    def forward(self, pages: Tensor) -> list[Tensor]:
        x = self.stem(pages)
        features = []
        for stage in self.stages:
            x = stage(x)
            features.append(x)
        return features


class FeaturePyramid(nn.Module):
    """Four feature maps to one of (B, C, h, w): a quarter of its channels from each level of the pyramid."""

    def __init__(self, config: Config) -> None:
        super().__init__()
        channels, levels = config.channels, len(config.stage_channels)
        self.lateral = nn.ModuleList(
            convolution(stage_channels, channels, kernel_size=1) for stage_channels in config.stage_channels
        )
        self.up = upsampling(2)
        self.output = nn.ModuleList(
            nn.Sequential(convolution(channels, channels // levels, kernel_size=3), upsampling(2**level))
            for level in range(levels)
        )

    def forward(self, features: list[Tensor]) -> Tensor:
        laterals = [lateral(feature) for lateral, feature in zip(self.lateral, features, strict=True)]
        pyramid = [laterals.pop()]
        while laterals:
            pyramid.append(self.up(pyramid[-1]) + laterals.pop())
        outputs = [output(level) for output, level in zip(self.output, reversed(pyramid), strict=True)]
        return torch.cat(outputs, dim=1)


def head(channels: int) -> nn.Sequential:
    """(B, C, h, w) to logits (B, 1, H, W)."""
    width = channels // 4
    return nn.Sequential(
        convolution(channels, width, kernel_size=3),
        nn.ConvTranspose2d(width, width, 2, stride=2, bias=False),
        nn.BatchNorm2d(width),
        nn.ReLU(inplace=True),
        nn.ConvTranspose2d(width, 1, 2, stride=2),
    )


def convolution(in_channels: int, out_channels: int, *, kernel_size: int) -> nn.Sequential:
    return nn.Sequential(
        nn.Conv2d(in_channels, out_channels, kernel_size, padding=kernel_size // 2, bias=False),
        nn.BatchNorm2d(out_channels),
        nn.ReLU(inplace=True),
    )


def upsampling(factor: int) -> nn.Module:
    return nn.Upsample(scale_factor=factor, mode="bilinear", align_corners=True)


def initialise(module: nn.Module) -> None:
    if isinstance(module, nn.Conv2d):
        nn.init.kaiming_normal_(module.weight, mode="fan_out", nonlinearity="relu")
