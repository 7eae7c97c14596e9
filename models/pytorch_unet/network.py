"""U-Net (Ronneberger, Fischer and Brox, 2015, arXiv:1505.04597) with bilinear up-sampling.

The paper's contracting and expanding paths and skip connections, with the three changes of the variant that is trained
on whole photographs today: convolutions keep the size (padding 1) and are followed by batch normalisation, with a bias
all the same; bilinear interpolation takes the place of the transposed convolutions; and since that does not halve the
channels, the levels that feed it do: the deepest one has 512 channels, not 1024, and the decoder hands 256, 128 and 64
upwards. That is the variant of 17,267,458 parameters.

Shape letters: B batch, C channels, H height, W width, K classes.
"""

from dataclasses import dataclass
from itertools import pairwise

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from .._shared.u_net import UNet


@dataclass(frozen=True, kw_only=True)
class Config:
    in_channels: int = 3
    classes: int = 2
    widths: tuple[int, ...] = (64, 128, 256, 512, 512)  # channels of the encoder's levels, from full size downwards


class BilinearUNet(UNet):
    """Images (B, C, H, W) of any size to logits (B, K, H, W)."""

    def __init__(self, config: Config) -> None:
        super().__init__()
        widths = config.widths
        self.stem = DoubleConvolution(config.in_channels, widths[0], widths[0])
        self.down = nn.ModuleList(Down(above, below) for above, below in pairwise(widths))
        # Upwards, each level joins its skip connection with what comes from below, which already has the skip's width.
        skips = widths[-2::-1]  # 512, 256, 128, 64
        outputs = (*skips[1:], widths[0])  # 256, 128, 64, 64
        self.up = nn.ModuleList(Up(skip, out) for skip, out in zip(skips, outputs, strict=True))
        self.head = nn.Conv2d(widths[0], config.classes, 1)


class DoubleConvolution(nn.Sequential):
    """Two 3 x 3 convolutions that keep the size, each with batch normalisation and ReLU."""

    def __init__(self, in_channels: int, middle_channels: int, out_channels: int) -> None:
        super().__init__(
            nn.Conv2d(in_channels, middle_channels, 3, padding=1),
            nn.BatchNorm2d(middle_channels),
            nn.ReLU(inplace=True),
            nn.Conv2d(middle_channels, out_channels, 3, padding=1),
            nn.BatchNorm2d(out_channels),
            nn.ReLU(inplace=True),
        )


class Down(nn.Sequential):
    """(B, C, H, W) to (B, C', H // 2, W // 2)."""

    def __init__(self, in_channels: int, out_channels: int) -> None:
        super().__init__(nn.MaxPool2d(2), DoubleConvolution(in_channels, out_channels, out_channels))


class Up(nn.Module):
    """(B, C, h, w) from below and a skip connection (B, C, H, W), where h is H // 2, to (B, C', H, W)."""

    def __init__(self, channels: int, out_channels: int) -> None:
        super().__init__()
        self.convolutions = DoubleConvolution(2 * channels, channels, out_channels)

    def forward(self, below: Tensor, skip: Tensor) -> Tensor:
        x = F.interpolate(below, scale_factor=2, mode="bilinear", align_corners=True)
        missing_rows, missing_columns = skip.shape[2] - x.shape[2], skip.shape[3] - x.shape[3]  # 1 where H or W is odd
        x = F.pad(x, (0, missing_columns, 0, missing_rows))
        out: Tensor = self.convolutions(torch.cat([skip, x], dim=1))
        return out
