"""Actor, critic, discriminator and neural renderer of learning to paint (Huang et al., 2019, arXiv:1903.04411).

Shape letters: B batch, S side in pixels, K strokes of an action, P parameters of a stroke (ten of its shape, three of
its colour), A = K P action size, C channels; comments give the shapes at S = 128. Colours are in [0, 1].
"""

from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.nn.utils.parametrizations import weight_norm


@dataclass(frozen=True, kw_only=True)
class Config:
    """What the networks share."""

    image_size: int = 128
    episode_length: int = 40
    strokes: int = 5
    shape_parameters: int = 10
    widths: tuple[int, ...] = (64, 64, 128, 256, 512)  # of the first convolution and of the four stages of a ResNet-18

    @property
    def stroke_parameters(self) -> int:
        return self.shape_parameters + 3

    @property
    def action_size(self) -> int:
        return self.strokes * self.stroke_parameters


class Situation(nn.Module):
    """Images (B, C, S, S) and their painting step (B,) to (B, C + 3, S, S): step and coordinates as channels."""

    coordinates: Tensor  # (1, 2, S, S) row and column, in [0, 1]

    def __init__(self, config: Config) -> None:
        super().__init__()
        self.episode_length = config.episode_length
        places = torch.linspace(0.0, 1.0, config.image_size)
        coordinates = torch.stack(torch.meshgrid(places, places, indexing="ij"))[None]
        self.register_buffer("coordinates", coordinates, persistent=False)

    def forward(self, images: Tensor, step: Tensor) -> Tensor:
        count, _, height, width = images.shape
        time = (step.to(images.dtype) / self.episode_length)[:, None, None, None]
        return torch.cat(
            [images, time.expand(-1, -1, height, width), self.coordinates.expand(count, -1, -1, -1)], dim=1
        )


class Actor(nn.Module):
    """Canvas and target (B, 3, S, S) and painting step (B,) to the next strokes (B, A), in [0, 1]: a ResNet-18.

    The first convolution has stride 2 and 3 x 3 weights, and every stage halves the image again.
    """

    def __init__(self, config: Config) -> None:
        super().__init__()
        first, *widths = config.widths
        self.situation = Situation(config)
        self.layers = nn.Sequential(
            nn.Conv2d(9, first, 3, stride=2, padding=1, bias=False),  # (B, 64, 64, 64)
            nn.BatchNorm2d(first),
            nn.ReLU(),
            *stages(NormalisedBlock, first, widths),  # (B, 512, 4, 4)
            nn.AvgPool2d(4),
            nn.Flatten(),
            nn.Linear(widths[-1], config.action_size),
            nn.Sigmoid(),
        )

    def forward(self, canvas: Tensor, target: Tensor, step: Tensor) -> Tensor:
        action: Tensor = self.layers(self.situation(torch.cat([canvas, target], dim=1), step))
        return action


class Critic(nn.Module):
    """Canvases before and after an action and the target (B, 3, S, S), and the step before it (B,), to values (B,).

    A ResNet-18 with weight normalisation and translated ReLU in place of batch normalisation and ReLU.
    """

    def __init__(self, config: Config) -> None:
        super().__init__()
        first, *widths = config.widths
        self.situation = Situation(config)
        self.layers = nn.Sequential(
            weight_norm(nn.Conv2d(12, first, 3, stride=2, padding=1)),  # (B, 64, 64, 64)
            TranslatedReLU(),
            *stages(TranslatedBlock, first, widths),  # (B, 512, 4, 4)
            nn.AvgPool2d(4),
            nn.Flatten(),
            nn.Linear(widths[-1], 1),
        )

    def forward(self, canvas: Tensor, next_canvas: Tensor, target: Tensor, step: Tensor) -> Tensor:
        images = torch.cat([canvas, next_canvas, target], dim=1)
        value: Tensor = self.layers(self.situation(images, step + 1))
        return value.squeeze(-1)


def stages(block: type["NormalisedBlock | TranslatedBlock"], in_channels: int, widths: list[int]) -> list[nn.Module]:
    """Two residual blocks per width, the first of which halves the image."""
    blocks: list[nn.Module] = []
    for width in widths:
        blocks += [block(in_channels, width, stride=2), block(width, width, stride=1)]
        in_channels = width
    return blocks


class NormalisedBlock(nn.Module):
    """A residual block with batch normalisation: (B, C, S, S) to (B, C', S / stride, S / stride)."""

    def __init__(self, in_channels: int, out_channels: int, *, stride: int) -> None:
        super().__init__()
        self.residual = nn.Sequential(
            nn.Conv2d(in_channels, out_channels, 3, stride, padding=1, bias=False),
            nn.BatchNorm2d(out_channels),
            nn.ReLU(),
            nn.Conv2d(out_channels, out_channels, 3, padding=1, bias=False),
            nn.BatchNorm2d(out_channels),
        )
        self.shortcut = nn.Sequential()
        if stride != 1:
            self.shortcut.append(nn.Conv2d(in_channels, out_channels, 1, stride, bias=False))
            self.shortcut.append(nn.BatchNorm2d(out_channels))

    def forward(self, x: Tensor) -> Tensor:
        return F.relu(self.residual(x) + self.shortcut(x))


class TranslatedBlock(nn.Module):
    """The same with weight normalisation and translated ReLU."""

    def __init__(self, in_channels: int, out_channels: int, *, stride: int) -> None:
        super().__init__()
        self.residual = nn.Sequential(
            weight_norm(nn.Conv2d(in_channels, out_channels, 3, stride, padding=1)),
            TranslatedReLU(),
            weight_norm(nn.Conv2d(out_channels, out_channels, 3, padding=1)),
        )
        self.shortcut = nn.Sequential()
        if stride != 1:
            self.shortcut.append(weight_norm(nn.Conv2d(in_channels, out_channels, 1, stride)))
        self.activation = TranslatedReLU()

    def forward(self, x: Tensor) -> Tensor:
        y: Tensor = self.activation(self.residual(x) + self.shortcut(x))
        return y


class TranslatedReLU(nn.Module):
    """max(x, threshold) with a learned threshold, 0 at first (Xiang and Li, 2017, arXiv:1704.03971)."""

    def __init__(self) -> None:
        super().__init__()
        self.threshold = nn.Parameter(torch.zeros(1))

    def forward(self, x: Tensor) -> Tensor:
        return F.relu(x - self.threshold) + self.threshold


class Discriminator(nn.Module):
    """Pairs of a target and a canvas (B, 6, S, S) to scores (B,), high where the canvas looks like the target."""

    def __init__(self, config: Config) -> None:
        super().__init__()
        self.features = nn.Sequential(
            *self.layer(6, 16),  # (B, 16, 64, 64)
            *self.layer(16, 32),  # (B, 32, 32, 32)
            *self.layer(32, 64),  # (B, 64, 16, 16)
            *self.layer(64, 128),  # (B, 128, 8, 8)
        )
        self.output = weight_norm(nn.Conv2d(128, 1, 5, stride=2, padding=2))  # (B, 1, 4, 4)

    @staticmethod
    def layer(in_channels: int, out_channels: int) -> tuple[nn.Module, nn.Module]:
        return weight_norm(nn.Conv2d(in_channels, out_channels, 5, stride=2, padding=2)), TranslatedReLU()

    def forward(self, pairs: Tensor) -> Tensor:
        score: Tensor = self.output(self.features(pairs))
        return score.mean(dim=(1, 2, 3))


class StrokeRenderer(nn.Module):
    """Shapes of strokes (N, 10) to their opacities (N, 1, S, S) in [0, 1]: a learned stand-in for a drawing program."""

    def __init__(self, config: Config) -> None:
        super().__init__()
        self.layers = nn.Sequential(
            nn.Linear(config.shape_parameters, 512),
            nn.ReLU(),
            nn.Linear(512, 1024),
            nn.ReLU(),
            nn.Linear(1024, 2048),
            nn.ReLU(),
            nn.Linear(2048, 4096),
            nn.ReLU(),
            nn.Unflatten(1, (16, 16, 16)),
            *self.upsample(16, 32),  # (N, 8, 32, 32)
            *self.upsample(8, 16),  # (N, 4, 64, 64)
            *self.upsample(4, 8, out_channels=4),  # (N, 1, 128, 128)
            nn.Sigmoid(),
        )

    @staticmethod
    def upsample(in_channels: int, width: int, out_channels: int | None = None) -> tuple[nn.Module, ...]:
        """(N, C, S, S) to (N, C' / 4, 2 S, 2 S)."""
        return (
            nn.Conv2d(in_channels, width, 3, padding=1),
            nn.ReLU(),
            nn.Conv2d(width, out_channels or width, 3, padding=1),
            nn.PixelShuffle(2),
        )

    def forward(self, shapes: Tensor) -> Tensor:
        opacities: Tensor = self.layers(shapes)
        return opacities


class Painter(nn.Module):
    """Canvases (B, 3, S, S) and actions (B, A) to the canvases after the action's strokes, laid on one by one."""

    def __init__(self, config: Config) -> None:
        super().__init__()
        self.config = config
        self.renderer = StrokeRenderer(config)

    def forward(self, canvas: Tensor, action: Tensor) -> Tensor:
        config = self.config
        strokes = action.reshape(-1, config.strokes, config.stroke_parameters)  # (B, K, P)
        shapes, colours = strokes.tensor_split([config.shape_parameters], dim=-1)
        opacities = self.renderer(shapes.flatten(0, 1)).unflatten(0, (-1, config.strokes))  # (B, K, 1, S, S)
        paints = opacities * colours[..., None, None]  # (B, K, 3, S, S)
        for opacity, paint in zip(opacities.unbind(1), paints.unbind(1), strict=True):
            canvas = canvas * (1.0 - opacity) + paint
        return canvas
