"""MLPerf's 3D U-Net (Çiçek et al., 2016, arXiv:1606.06650), with strides, padding and norms after nnU-Net.

(Isensee et al., 2019, arXiv:1908.02182: strided convolutions in place of pooling, instance normalisation, transposed
convolutions upwards, at most 320 channels.) Shape letters: B batch, C channels, S side in voxels, K classes.
"""

from dataclasses import dataclass
from itertools import pairwise

import torch
from torch import Tensor, nn

from .._shared.u_net import UNet


@dataclass(frozen=True, kw_only=True)
class Config:
    in_channels: int = 1
    classes: int = 3  # background, kidney, tumour
    widths: tuple[int, ...] = (32, 64, 128, 256, 320, 320)  # channels of the levels, from full size downwards


class UNet3D(UNet):
    """Volumes (B, C, S, S, S), sides multiples of 32, to logits (B, K, S, S, S)."""

    def __init__(self, config: Config) -> None:
        super().__init__()
        widths = config.widths
        self.stem = double_convolution(config.in_channels, widths[0])
        self.down = nn.ModuleList(double_convolution(above, below, stride=2) for above, below in pairwise(widths))
        self.up = nn.ModuleList(Up(below, above) for below, above in pairwise(reversed(widths)))
        self.head = nn.Conv3d(widths[0], config.classes, 1)


def double_convolution(in_channels: int, out_channels: int, *, stride: int = 1) -> nn.Sequential:
    """(B, C, S, S, S) to (B, C', S / stride, ...)."""
    return nn.Sequential(*normalised(in_channels, out_channels, stride), *normalised(out_channels, out_channels, 1))


def normalised(in_channels: int, out_channels: int, stride: int) -> tuple[nn.Module, ...]:
    return (
        nn.Conv3d(in_channels, out_channels, 3, stride, padding=1, bias=False),
        nn.InstanceNorm3d(out_channels, affine=True),
        nn.ReLU(inplace=True),
    )


class Up(nn.Module):
    """(B, C, S/2, ...) from below and a skip connection (B, C', S, ...) to (B, C', S, ...)."""

    def __init__(self, in_channels: int, out_channels: int) -> None:
        super().__init__()
        self.upsample = nn.ConvTranspose3d(in_channels, out_channels, 2, stride=2)
        self.convolutions = double_convolution(2 * out_channels, out_channels)

    def forward(self, below: Tensor, skip: Tensor) -> Tensor:
        out: Tensor = self.convolutions(torch.cat([self.upsample(below), skip], dim=1))
        return out
