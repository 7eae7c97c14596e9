"""The generator and discriminator of DCGAN (Radford, Metz and Chintala, 2015, arXiv:1511.06434).

Strided convolutions in place of pooling, batch normalisation except at the image, ReLU in the generator and leaky
ReLU in the discriminator, no fully connected layers. Shape letters: B batch, Z latent size, C image channels; comments
give the shapes at the default width of 64.
"""

from dataclasses import dataclass

from torch import Tensor, nn


@dataclass(frozen=True, kw_only=True)
class GeneratorConfig:
    latent_size: int = 100
    width: int = 64  # feature maps of the layer before the image
    channels: int = 3


@dataclass(frozen=True, kw_only=True)
class DiscriminatorConfig:
    channels: int = 3
    width: int = 64  # feature maps of the first layer
    negative_slope: float = 0.2


class Generator(nn.Module):
    """Latent vectors (B, Z) to images (B, C, 64, 64) in [-1, 1]."""

    def __init__(self, config: GeneratorConfig) -> None:
        super().__init__()
        width = config.width
        self.layers = nn.Sequential(
            self.block(config.latent_size, 8 * width, stride=1, padding=0),  # (B, 512, 4, 4)
            self.block(8 * width, 4 * width),  # (B, 256, 8, 8)
            self.block(4 * width, 2 * width),  # (B, 128, 16, 16)
            self.block(2 * width, width),  # (B, 64, 32, 32)
            nn.ConvTranspose2d(width, config.channels, 4, stride=2, padding=1, bias=False),  # (B, C, 64, 64)
            nn.Tanh(),
        )
        self.apply(initialise)

    @staticmethod
    def block(in_channels: int, out_channels: int, *, stride: int = 2, padding: int = 1) -> nn.Sequential:
        return nn.Sequential(
            nn.ConvTranspose2d(in_channels, out_channels, 4, stride, padding, bias=False),
            nn.BatchNorm2d(out_channels),
            nn.ReLU(inplace=True),
        )

    def forward(self, noise: Tensor) -> Tensor:
        images: Tensor = self.layers(noise[:, :, None, None])
        return images


class Discriminator(nn.Module):
    """Images (B, C, 64, 64) to logits (B,) of their being real: the paper's sigmoid is left to the loss."""

    def __init__(self, config: DiscriminatorConfig) -> None:
        super().__init__()
        width, slope = config.width, config.negative_slope
        self.layers = nn.Sequential(
            nn.Conv2d(config.channels, width, 4, stride=2, padding=1, bias=False),  # (B, 64, 32, 32)
            nn.LeakyReLU(slope, inplace=True),
            self.block(width, 2 * width, slope),  # (B, 128, 16, 16)
            self.block(2 * width, 4 * width, slope),  # (B, 256, 8, 8)
            self.block(4 * width, 8 * width, slope),  # (B, 512, 4, 4)
            nn.Conv2d(8 * width, 1, 4, bias=False),  # (B, 1, 1, 1)
            nn.Flatten(start_dim=0),
        )
        self.apply(initialise)

    @staticmethod
    def block(in_channels: int, out_channels: int, slope: float) -> nn.Sequential:
        return nn.Sequential(
            nn.Conv2d(in_channels, out_channels, 4, stride=2, padding=1, bias=False),
            nn.BatchNorm2d(out_channels),
            nn.LeakyReLU(slope, inplace=True),
        )

    def forward(self, images: Tensor) -> Tensor:
        logits: Tensor = self.layers(images)
        return logits


def initialise(module: nn.Module) -> None:
    """The paper's normal distribution of deviation 0.02, in batch normalisation around a scale of 1."""
    if isinstance(module, nn.Conv2d | nn.ConvTranspose2d):
        nn.init.normal_(module.weight, 0.0, 0.02)
    elif isinstance(module, nn.BatchNorm2d):
        nn.init.normal_(module.weight, 1.0, 0.02)
