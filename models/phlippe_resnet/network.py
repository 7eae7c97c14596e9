"""The CIFAR form of ResNet: three groups of three blocks, 16, 32 and 64 wide (He et al., 2015, section 4.2).

As in the tutorials, a block that halves the image has a 1 x 1 convolution on its shortcut: 272,378 parameters.
Shape letters: B batch, C channels, S image side, K classes.
"""

from dataclasses import dataclass

from torch import Tensor, nn
from torch.nn import functional as F


@dataclass(frozen=True, kw_only=True)
class Config:
    widths: tuple[int, ...] = (16, 32, 64)
    blocks: int = 3  # per width
    classes: int = 10


class Block(nn.Module):
    """(B, C, S, S) to (B, C', S / stride, S / stride): two convolutions beside a shortcut."""

    def __init__(self, in_channels: int, out_channels: int, stride: int) -> None:
        super().__init__()
        self.residual = nn.Sequential(
            nn.Conv2d(in_channels, out_channels, 3, stride, padding=1, bias=False),
            nn.BatchNorm2d(out_channels),
            nn.ReLU(inplace=True),
            nn.Conv2d(out_channels, out_channels, 3, padding=1, bias=False),
            nn.BatchNorm2d(out_channels),
        )
        self.shortcut = nn.Conv2d(in_channels, out_channels, 1, stride) if stride > 1 else nn.Identity()

    def forward(self, x: Tensor) -> Tensor:
        return F.relu(self.shortcut(x) + self.residual(x))


class ResNet(nn.Module):
    """Images (B, 3, 32, 32) to logits (B, K)."""

    def __init__(self, config: Config) -> None:
        super().__init__()
        width = config.widths[0]
        layers: list[nn.Module] = [
            nn.Conv2d(3, width, 3, padding=1, bias=False),  # (B, 16, 32, 32)
            nn.BatchNorm2d(width),
            nn.ReLU(inplace=True),
        ]
        for group, out_width in enumerate(config.widths):  # (B, 16, 32, 32), (B, 32, 16, 16), (B, 64, 8, 8)
            for block in range(config.blocks):
                layers.append(Block(width, out_width, stride=2 if group > 0 and block == 0 else 1))
                width = out_width
        layers += [nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(width, config.classes)]
        self.layers = nn.Sequential(*layers)
        self.apply(initialise)

    def forward(self, images: Tensor) -> Tensor:
        logits: Tensor = self.layers(images)
        return logits


def initialise(module: nn.Module) -> None:
    if isinstance(module, nn.Conv2d):
        nn.init.kaiming_normal_(module.weight, mode="fan_out", nonlinearity="relu")
