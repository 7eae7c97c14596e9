"""CRNN (Shi et al., 2015, arXiv:1507.05717) in docTR's form: convolutions of VGG-16, two bidirectional LSTM layers.

Shape letters: B batch, C channels, H height, W width, T columns of features (a quarter of the width), K classes.
"""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor, nn

# Of VGG-16 (Simonyan and Zisserman, 2014, arXiv:1409.1556): output channels of each convolution, by stage.
STAGES = ((64, 64), (128, 128), (256, 256, 256), (512, 512, 512), (512, 512, 512))
# Each stage's pooling, height by width: the last three keep the width, so that 32 rows become 1 and 128 columns 32.
POOLINGS = ((2, 2), (2, 2), (2, 1), (2, 1), (2, 1))


@dataclass(frozen=True, kw_only=True)
class Config:
    characters: int = 126  # docTR's French vocabulary; CTC's blank is the class after them
    hidden_size: int = 128  # per direction
    layers: int = 2


class CRNN(nn.Module):
    """Crops of words (B, 3, 32, W) to logits (B, T, K)."""

    def __init__(self, config: Config) -> None:
        super().__init__()
        self.features = convolutions()
        self.decoder = nn.LSTM(STAGES[-1][-1], config.hidden_size, config.layers, batch_first=True, bidirectional=True)
        self.output = nn.Linear(2 * config.hidden_size, config.characters + 1)

    def forward(self, crops: Tensor) -> Tensor:
        features = self.features(crops)  # (B, C, 1, T)
        states, _ = self.decoder(features.squeeze(2).transpose(1, 2))  # (B, T, 2 * hidden size)
        logits: Tensor = self.output(states)
        return logits


def convolutions() -> nn.Sequential:
    layers: list[nn.Module] = []
    in_channels = 3
    for stage, pooling in zip(STAGES, POOLINGS, strict=True):
        for channels in stage:
            convolution = nn.Conv2d(in_channels, channels, 3, padding=1)
            nn.init.kaiming_normal_(convolution.weight, mode="fan_out", nonlinearity="relu")
            nn.init.zeros_(convolution.bias)  # type: ignore[arg-type]
            layers += [convolution, nn.BatchNorm2d(channels), nn.ReLU(inplace=True)]
            in_channels = channels
        layers.append(nn.MaxPool2d(pooling))
    return nn.Sequential(*layers)
