"""Super SloMo (Jiang et al., 2018, arXiv:1712.00080): frames between two frames, by optical flow and its refinement.

Shape letters: B batch, C channels, H height, W width. Frames have 3 channels, in [0, 1]; flows have 2, horizontal and
vertical, in pixels. Times (B, 1, 1, 1) are in (0, 1), between frame 0 and frame 1.
"""

from dataclasses import dataclass
from itertools import pairwise
from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from .._shared.u_net import UNet


@dataclass(frozen=True, kw_only=True)
class Config:
    """Of both U-Nets."""

    widths: tuple[int, ...] = (32, 64, 128, 256, 512, 512)  # channels, from full size downwards
    kernel_sizes: tuple[int, ...] = (7, 5, 3, 3, 3, 3)  # on the way down: large ones see large motions
    negative_slope: float = 0.1


class Interpolation(NamedTuple):
    frame: Tensor  # (B, 3, H, W) at the time asked for
    flow01: Tensor  # (B, 2, H, W) from frame 0 to frame 1
    flow10: Tensor
    warps: tuple[Tensor, Tensor]  # frame 0 and frame 1, warped to that time by the flows before refinement


class SuperSloMo(nn.Module):
    """Frames 0 and 1 (B, 3, H, W), sides multiples of 32, and times (B, 1, 1, 1) to the frames at those times."""

    def __init__(self, config: Config) -> None:
        super().__init__()
        self.flow = FrameUNet(6, 4, config)
        self.interpolation = FrameUNet(20, 5, config)

    def forward(self, frame0: Tensor, frame1: Tensor, time: Tensor) -> Interpolation:
        flow01, flow10 = self.flow(torch.cat([frame0, frame1], dim=1)).chunk(2, dim=1)
        # The flows from the time asked for, if motion is smooth and as here (equation 4).
        flow_t0 = -(1 - time) * time * flow01 + time**2 * flow10
        flow_t1 = (1 - time) ** 2 * flow01 - time * (1 - time) * flow10
        warp0, warp1 = backward_warp(frame0, flow_t0), backward_warp(frame1, flow_t1)

        refinement = self.interpolation(
            torch.cat([frame0, frame1, flow01, flow10, flow_t1, flow_t0, warp1, warp0], dim=1)
        )
        residual_t0, residual_t1, visibility_logit = refinement.split([2, 2, 1], dim=1)
        visibility0 = visibility_logit.sigmoid()
        weight0, weight1 = (1 - time) * visibility0, time * (1 - visibility0)
        refined0 = backward_warp(frame0, flow_t0 + residual_t0)
        refined1 = backward_warp(frame1, flow_t1 + residual_t1)
        frame = (weight0 * refined0 + weight1 * refined1) / (weight0 + weight1)
        return Interpolation(frame, flow01, flow10, (warp0, warp1))


class FrameUNet(UNet):
    """(B, C, H, W) to (B, C', H, W): six levels, average pooling down, bilinear interpolation up."""

    def __init__(self, in_channels: int, out_channels: int, config: Config) -> None:
        super().__init__()
        first = config.widths[0]
        kernel_size, *kernel_sizes = config.kernel_sizes
        slope = config.negative_slope
        self.stem = DoubleConvolution(in_channels, first, kernel_size, slope)
        self.down = nn.ModuleList(
            nn.Sequential(nn.AvgPool2d(2), DoubleConvolution(above, below, size, slope))
            for (above, below), size in zip(pairwise(config.widths), kernel_sizes, strict=True)
        )
        self.up = nn.ModuleList(Up(below, above, slope) for below, above in pairwise(config.widths[::-1]))
        self.head = nn.Conv2d(first, out_channels, 3, padding=1)


class DoubleConvolution(nn.Sequential):
    def __init__(self, in_channels: int, out_channels: int, kernel_size: int, negative_slope: float) -> None:
        super().__init__(
            nn.Conv2d(in_channels, out_channels, kernel_size, padding=kernel_size // 2),
            nn.LeakyReLU(negative_slope, inplace=True),
            nn.Conv2d(out_channels, out_channels, kernel_size, padding=kernel_size // 2),
            nn.LeakyReLU(negative_slope, inplace=True),
        )


class Up(nn.Module):
    """(B, C, H/2, W/2) from below and a skip connection (B, C', H, W) to (B, C', H, W)."""

    def __init__(self, in_channels: int, out_channels: int, negative_slope: float) -> None:
        super().__init__()
        self.narrow = nn.Conv2d(in_channels, out_channels, 3, padding=1)
        self.join = nn.Conv2d(2 * out_channels, out_channels, 3, padding=1)
        self.activation = nn.LeakyReLU(negative_slope)

    def forward(self, below: Tensor, skip: Tensor) -> Tensor:
        x = F.interpolate(below, scale_factor=2, mode="bilinear")
        x = self.activation(self.narrow(x))
        out: Tensor = self.activation(self.join(torch.cat([x, skip], dim=1)))
        return out


def backward_warp(frames: Tensor, flow: Tensor) -> Tensor:
    """The frame (B, 3, H, W) whose pixel p is that of `frames` at p + `flow` (B, 2, H, W), by bilinear sampling.

    Positions have at least 32 bits: 16 can't tell the pixels of a frame apart.
    """
    height, width = flow.shape[2:]
    flow = flow.to(torch.promote_types(flow.dtype, torch.float32))
    column = torch.arange(width, device=flow.device, dtype=flow.dtype)
    row = torch.arange(height, device=flow.device, dtype=flow.dtype)[:, None]
    x = 2 * (column + flow[:, 0]) / (width - 1) - 1  # (B, H, W) in [-1, 1] from the first column to the last
    y = 2 * (row + flow[:, 1]) / (height - 1) - 1
    grid = torch.stack([x, y], dim=-1)
    return F.grid_sample(frames.to(grid.dtype), grid, align_corners=True).to(frames.dtype)
