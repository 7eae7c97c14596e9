"""YOLOv3 (Redmon and Farhadi, 2018, arXiv:1804.02767) with spatial pyramid pooling (He et al., 2014, arXiv:1406.4729).

Darknet-53, then three detection heads, coarse to fine; the coarsest level pools its features over 5, 9 and 13 cells.
Shape letters: B batch, C channels, H and W height and width of the image, h and w those of a level's grid of cells,
A anchors per cell, K classes.
"""

from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional as F


@dataclass(frozen=True, kw_only=True)
class Config:
    classes: int = 80
    stem_width: int = 32
    widths: tuple[int, ...] = (64, 128, 256, 512, 1024)  # of Darknet's stages, each of which halves the image
    depths: tuple[int, ...] = (1, 2, 8, 8, 4)  # residual blocks of the stages
    pool_sizes: tuple[int, ...] = (5, 9, 13)
    strides: tuple[int, ...] = (32, 16, 8)  # pixels per cell of the three levels
    anchors: tuple[tuple[tuple[int, int], ...], ...] = (  # width and height in pixels, of each level
        ((116, 90), (156, 198), (373, 326)),
        ((30, 61), (62, 45), (59, 119)),
        ((10, 13), (16, 30), (33, 23)),
    )

    @property
    def anchors_per_cell(self) -> int:
        return len(self.anchors[0])

    @property
    def values_per_anchor(self) -> int:
        """x, y, w, h, objectness and the classes."""
        return 5 + self.classes


class YOLOv3(nn.Module):
    """Images (B, 3, H, W) to raw predictions (B, A, h, w, 5 + K) of the levels of stride 32, 16 and 8."""

    anchors: Tensor  # (levels, A, 2) in pixels

    def __init__(self, config: Config) -> None:
        super().__init__()
        self.backbone = Darknet53(config)
        fine, middle, coarse = config.widths[-3:]
        necks: list[nn.Module] = [pyramid_neck(coarse, config.pool_sizes)]
        laterals: list[nn.Module] = []
        heads: list[nn.Module] = [Head(coarse // 2, config)]
        for above, width in ((coarse, middle), (middle, fine)):
            laterals.append(ConvolutionBlock(above // 2, above // 4, 1))
            necks.append(neck(above // 4 + width, width))
            heads.append(Head(width // 2, config))
        self.necks, self.laterals, self.heads = nn.ModuleList(necks), nn.ModuleList(laterals), nn.ModuleList(heads)
        self.register_buffer("anchors", torch.tensor(config.anchors, dtype=torch.get_default_dtype()))

    def forward(self, images: Tensor) -> list[Tensor]:
        fine, middle, coarse = self.backbone(images)
        x = self.necks[0](coarse)
        predictions = [self.heads[0](x)]
        for lateral, features, level_neck, head in zip(
            self.laterals, (middle, fine), self.necks[1:], self.heads[1:], strict=True
        ):
            x = F.interpolate(lateral(x), scale_factor=2, mode="nearest")
            x = level_neck(torch.cat([x, features], dim=1))
            predictions.append(head(x))
        return predictions


class ConvolutionBlock(nn.Sequential):
    """Convolution, batch normalisation, leaky ReLU."""

    def __init__(self, in_channels: int, out_channels: int, kernel_size: int, *, stride: int = 1) -> None:
        super().__init__(
            nn.Conv2d(in_channels, out_channels, kernel_size, stride, padding=kernel_size // 2, bias=False),
            nn.BatchNorm2d(out_channels),
            nn.LeakyReLU(0.1, inplace=True),
        )


class Darknet53(nn.Module):
    """Images (B, 3, H, W) to features of stride 8 (B, 256, H/8, W/8), 16 (B, 512, ...) and 32 (B, 1024, ...)."""

    def __init__(self, config: Config) -> None:
        super().__init__()
        self.stem = ConvolutionBlock(3, config.stem_width, 3)
        stages: list[nn.Module] = []
        in_channels = config.stem_width
        for width, depth in zip(config.widths, config.depths, strict=True):
            halve = ConvolutionBlock(in_channels, width, 3, stride=2)
            stages.append(nn.Sequential(halve, *(ResidualBlock(width) for _ in range(depth))))
            in_channels = width
        self.stages = nn.ModuleList(stages)

    def forward(self, images: Tensor) -> list[Tensor]:
        x = self.stem(images)
        features = []
        for stage in self.stages:
            x = stage(x)
            features.append(x)
        return features[-3:]


class ResidualBlock(nn.Module):
    def __init__(self, channels: int) -> None:
        super().__init__()
        self.residual = nn.Sequential(
            ConvolutionBlock(channels, channels // 2, 1), ConvolutionBlock(channels // 2, channels, 3)
        )

    def forward(self, x: Tensor) -> Tensor:
        y: Tensor = x + self.residual(x)
        return y


class PyramidPooling(nn.Module):
    """(B, C, h, w) to (B, 4 C, h, w): the features beside their maxima over windows of each size."""

    def __init__(self, sizes: tuple[int, ...]) -> None:
        super().__init__()
        self.pools = nn.ModuleList(nn.MaxPool2d(size, stride=1, padding=size // 2) for size in sizes)

    def forward(self, x: Tensor) -> Tensor:
        return torch.cat([x, *(pool(x) for pool in self.pools)], dim=1)


def neck(in_channels: int, width: int) -> nn.Sequential:
    """(B, C, h, w) to (B, width / 2, h, w): 1 x 1 and 3 x 3 convolutions in turn."""
    half = width // 2
    return nn.Sequential(
        ConvolutionBlock(in_channels, half, 1),
        ConvolutionBlock(half, width, 3),
        ConvolutionBlock(width, half, 1),
        ConvolutionBlock(half, width, 3),
        ConvolutionBlock(width, half, 1),
    )


def pyramid_neck(width: int, pool_sizes: tuple[int, ...]) -> nn.Sequential:
    """The same from (B, width, h, w), with pyramid pooling in its middle."""
    half = width // 2
    return nn.Sequential(
        ConvolutionBlock(width, half, 1),
        ConvolutionBlock(half, width, 3),
        ConvolutionBlock(width, half, 1),
        PyramidPooling(pool_sizes),
        ConvolutionBlock((1 + len(pool_sizes)) * half, half, 1),
        ConvolutionBlock(half, width, 3),
        ConvolutionBlock(width, half, 1),
    )


class Head(nn.Module):
    """(B, C, h, w) to raw predictions (B, A, h, w, 5 + K)."""

    def __init__(self, channels: int, config: Config) -> None:
        super().__init__()
        self.shape = (config.anchors_per_cell, config.values_per_anchor)
        self.block = ConvolutionBlock(channels, 2 * channels, 3)
        self.output = nn.Conv2d(2 * channels, config.anchors_per_cell * config.values_per_anchor, 1)

    def forward(self, x: Tensor) -> Tensor:
        values: Tensor = self.output(self.block(x))
        return values.view(len(values), *self.shape, *values.shape[2:]).permute(0, 1, 3, 4, 2)
