"""What image-translation GANs share: Johnson's residual block, the PatchGAN discriminator and the least-squares loss.

(Johnson, Alahi and Fei-Fei, 2016, arXiv:1603.08155; Isola et al., 2017, arXiv:1611.07004; Mao et al., 2017,
arXiv:1611.04076.)
Shape letters: B batch, C channels, H height, W width, h and w the grid of patches.
"""

from __future__ import annotations

from collections.abc import Callable

from torch import Tensor, nn


class ReflectedResidualBlock(nn.Module):
    """(B, C, H, W) to the same: two 3 x 3 convolutions, each padded by reflection and followed by `norm(C)`."""

    def __init__(self, channels: int, norm: Callable[[int], nn.Module]) -> None:
        super().__init__()
        self.residual = nn.Sequential(
            nn.ReflectionPad2d(1),
            nn.Conv2d(channels, channels, 3),
            norm(channels),
            nn.ReLU(inplace=True),
            nn.ReflectionPad2d(1),
            nn.Conv2d(channels, channels, 3),
            norm(channels),
        )

    def forward(self, x: Tensor) -> Tensor:
        y: Tensor = x + self.residual(x)
        return y


class PatchDiscriminator(nn.Module):
    """Images (B, 3, H, W) to scores (B, 1, h, w), one for each of the overlapping patches of 70 x 70 pixels.

    Instance normalisation without learned scales stands between the convolutions. `padding` 1 gives a grid of
    H / 8 - 2, and 2, which pix2pixHD took, H / 8 + 3.
    """

    def __init__(self, *, padding: int = 1, in_channels: int = 3, width: int = 64) -> None:
        super().__init__()
        self.layers = nn.Sequential(
            nn.Conv2d(in_channels, width, 4, stride=2, padding=padding),  # (B, 64, H/2, W/2)
            nn.LeakyReLU(0.2, inplace=True),
            *self.block(width, 2 * width, stride=2, padding=padding),  # (B, 128, H/4, W/4)
            *self.block(2 * width, 4 * width, stride=2, padding=padding),  # (B, 256, H/8, W/8)
            *self.block(4 * width, 8 * width, stride=1, padding=padding),  # (B, 512, h, w)
            nn.Conv2d(8 * width, 1, 4, padding=padding),
        )

    @staticmethod
    def block(in_channels: int, out_channels: int, *, stride: int, padding: int) -> tuple[nn.Module, ...]:
        return (
            nn.Conv2d(in_channels, out_channels, 4, stride, padding),
            nn.InstanceNorm2d(out_channels),
            nn.LeakyReLU(0.2, inplace=True),
        )

    def forward(self, images: Tensor) -> Tensor:
        scores: Tensor = self.layers(images)
        return scores


def least_squares_loss(scores: Tensor, label: float) -> Tensor:
    """The mean squared distance of scores (B, 1, h, w) to the label of real images, 1, or of generated ones, 0."""
    return (scores - label).square().mean()
