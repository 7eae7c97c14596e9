"""Demucs (Défossez et al., 2019, arXiv:1911.13254), first version: a U-Net on waveforms, with an LSTM at its bottom.

Nothing is padded, so the sources are a little shorter than the mixture, and skip connections are cut to fit.

Shape letters: B batch, S sources, A audio channels, C channels, L samples.
"""

from dataclasses import dataclass

from torch import Tensor, nn
from torch.nn import functional as F


@dataclass(frozen=True, kw_only=True)
class Config:
    sources: int = 4
    channels: int = 2  # of the audio
    width: int = 64  # channels of the first layer; each next one has twice as many
    depth: int = 6
    kernel_size: int = 8
    stride: int = 4
    context: int = 3  # kernel of the decoder's first convolutions
    lstm_layers: int = 2
    reference_deviation: float = 0.1  # of weights at the start


class Demucs(nn.Module):
    """Mixtures (B, A, L) to sources (B, S, A, L'), L' <= L."""

    def __init__(self, config: Config) -> None:
        super().__init__()
        c = config
        widths = [c.width * 2**index for index in range(c.depth)]
        self.sources = c.sources
        self.encoder = nn.ModuleList(
            EncoderLayer(before, after, c) for before, after in zip([c.channels, *widths], widths, strict=False)
        )
        self.bottom = Bottom(widths[-1], c.lstm_layers)
        outputs = [*widths[-2::-1], c.sources * c.channels]
        self.decoder = nn.ModuleList(
            DecoderLayer(before, after, c) for before, after in zip(widths[::-1], outputs, strict=True)
        )
        for module in self.modules():
            if isinstance(module, nn.Conv1d | nn.ConvTranspose1d):
                rescale(module, c.reference_deviation)

    def forward(self, mixtures: Tensor) -> Tensor:
        x = mixtures
        skipped = []
        for layer in self.encoder:
            x = layer(x)
            skipped.append(x)
        x = self.bottom(x)
        for index, layer in enumerate(self.decoder):
            x = layer(x + centre(skipped.pop(), x.shape[-1]))
            if index < len(self.decoder) - 1:
                x = F.relu(x)
        return x.reshape(len(x), self.sources, -1, x.shape[2])


class EncoderLayer(nn.Module):
    """(B, C, L) to (B, C', about L / 4)."""

    def __init__(self, in_channels: int, out_channels: int, config: Config) -> None:
        super().__init__()
        self.convolution = nn.Conv1d(in_channels, out_channels, config.kernel_size, config.stride)
        self.gated = nn.Conv1d(out_channels, 2 * out_channels, 1)

    def forward(self, x: Tensor) -> Tensor:
        return F.glu(self.gated(F.relu(self.convolution(x))), dim=1)


class DecoderLayer(nn.Module):
    """(B, C, L) to (B, C', about 4 L)."""

    def __init__(self, in_channels: int, out_channels: int, config: Config) -> None:
        super().__init__()
        self.gated = nn.Conv1d(in_channels, 2 * in_channels, config.context)
        self.convolution = nn.ConvTranspose1d(in_channels, out_channels, config.kernel_size, config.stride)

    def forward(self, x: Tensor) -> Tensor:
        upsampled: Tensor = self.convolution(F.glu(self.gated(x), dim=1))
        return upsampled


class Bottom(nn.Module):
    """A bidirectional LSTM (B, C, L) and a linear layer back to the same shape."""

    def __init__(self, width: int, layers: int) -> None:
        super().__init__()
        self.lstm = nn.LSTM(width, width, num_layers=layers, bidirectional=True)
        self.linear = nn.Linear(2 * width, width)

    def forward(self, x: Tensor) -> Tensor:
        hidden, _ = self.lstm(x.permute(2, 0, 1))  # (L, B, 2 C)
        mixed: Tensor = self.linear(hidden)
        return mixed.permute(1, 2, 0)


def centre(x: Tensor, length: int) -> Tensor:
    """The middle `length` samples of x (..., L)."""
    return x.narrow(-1, (x.shape[-1] - length) // 2, length)


def rescale(convolution: nn.Conv1d | nn.ConvTranspose1d, reference_deviation: float) -> None:
    """The paper's initialisation (section 4.3): weights go half of the way, in the exponent, to the same deviation."""
    scale = (convolution.weight.detach().std() / reference_deviation).sqrt()
    convolution.weight.data /= scale
    assert convolution.bias is not None
    convolution.bias.data /= scale
