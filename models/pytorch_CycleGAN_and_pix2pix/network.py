"""CycleGAN's generator (Zhu et al., 2017, arXiv:1703.10593), the residual one of Johnson, Alahi and Fei-Fei (2016).

Shape letters: B batch, S side in pixels; comments give the shapes at the default width of 64.
"""

from dataclasses import dataclass

from torch import Tensor, nn

from .._shared.image_translation import ReflectedResidualBlock


@dataclass(frozen=True, kw_only=True)
class Config:
    channels: int = 3
    width: int = 64  # feature maps at full size
    blocks: int = 9


class Generator(nn.Module):
    """Images (B, 3, S, S) to images (B, 3, S, S), both in [-1, 1]."""

    def __init__(self, config: Config) -> None:
        super().__init__()
        width = config.width
        self.layers = nn.Sequential(
            nn.ReflectionPad2d(3),
            *normalised(nn.Conv2d(config.channels, width, 7)),  # (B, 64, S, S)
            *normalised(nn.Conv2d(width, 2 * width, 3, stride=2, padding=1)),  # (B, 128, S/2, S/2)
            *normalised(nn.Conv2d(2 * width, 4 * width, 3, stride=2, padding=1)),  # (B, 256, S/4, S/4)
            *(ReflectedResidualBlock(4 * width, nn.InstanceNorm2d) for _ in range(config.blocks)),
            *normalised(nn.ConvTranspose2d(4 * width, 2 * width, 3, stride=2, padding=1, output_padding=1)),
            *normalised(nn.ConvTranspose2d(2 * width, width, 3, stride=2, padding=1, output_padding=1)),
            nn.ReflectionPad2d(3),
            nn.Conv2d(width, config.channels, 7),
            nn.Tanh(),
        )

    def forward(self, images: Tensor) -> Tensor:
        translated: Tensor = self.layers(images)
        return translated


def normalised(convolution: nn.Conv2d | nn.ConvTranspose2d) -> tuple[nn.Module, ...]:
    return convolution, nn.InstanceNorm2d(convolution.out_channels), nn.ReLU(inplace=True)


def initialise(module: nn.Module) -> None:
    """Convolutions from a normal distribution of deviation 0.02, without bias at first."""
    if isinstance(module, nn.Conv2d | nn.ConvTranspose2d):
        nn.init.normal_(module.weight, 0.0, 0.02)
        assert module.bias is not None
        nn.init.zeros_(module.bias)
