"""The classifier of the paper's Omniglot experiments: strided convolutions (Finn et al., 2017, section 5.2).

Shape letters: N images, W classes, C channels; comments give the shapes at 28 x 28 pixels.
"""

from dataclasses import dataclass

from torch import Tensor, nn

from .._shared.maml import CLASSES, batch_norm


@dataclass(frozen=True, kw_only=True)
class Config:
    channels: int = 64
    classes: int = CLASSES


class Classifier(nn.Module):
    """Images (N, 1, 28, 28) to logits (N, W); 91,781 parameters."""

    def __init__(self, config: Config) -> None:
        super().__init__()
        channels = config.channels
        self.layers = nn.Sequential(
            *self.block(1, channels),  # (N, C, 13, 13)
            *self.block(channels, channels),  # (N, C, 6, 6)
            *self.block(channels, channels),  # (N, C, 2, 2)
            *self.block(channels, channels, kernel_size=2, stride=1),  # (N, C, 1, 1)
            nn.Flatten(),
            nn.Linear(channels, config.classes),
        )

    @staticmethod
    def block(in_channels: int, out_channels: int, kernel_size: int = 3, stride: int = 2) -> tuple[nn.Module, ...]:
        return nn.Conv2d(in_channels, out_channels, kernel_size, stride), batch_norm(out_channels), nn.ReLU()

    def forward(self, images: Tensor) -> Tensor:
        logits: Tensor = self.layers(images)
        return logits
