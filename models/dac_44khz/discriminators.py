"""The discriminators of DAC (Kumar et al., 2023, arXiv:2306.06546) and their losses.

Five see the audio folded at a period (Kong et al., 2020, arXiv:2010.05646). Three see its complex spectrum, each at a
resolution of its own and in five bands of frequencies. What is not in the paper is from the authors' code,
https://github.com/descriptinc/descript-audio-codec.

Shape letters: B batch, S samples, P samples of a period, W samples of a window, T frames, K frequencies.
"""

from collections.abc import Sequence
from itertools import pairwise

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.nn.utils.parametrizations import weight_norm

PERIODS = (2, 3, 5, 7, 11)
WINDOWS = (2048, 1024, 512)
BAND_ENDS = (0.0, 0.1, 0.25, 0.5, 0.75, 1.0)  # as parts of all frequencies

#: What a discriminator finds after each of its convolutions. The last tensor has its scores.
Findings = list[Tensor]


class Discriminators(nn.Module):
    """Audio (B, S) to what each discriminator finds in it.

    Args:
        period_widths: the channels of those of a period.
        band_width: the channels of those of spectra.
    """

    def __init__(self, period_widths: Sequence[int] = (32, 128, 512, 1024, 1024), band_width: int = 32) -> None:
        super().__init__()
        self.periods = nn.ModuleList(PeriodDiscriminator(period, period_widths) for period in PERIODS)
        self.spectra = nn.ModuleList(SpectrumDiscriminator(window, band_width) for window in WINDOWS)

    def forward(self, audio: Tensor) -> list[Findings]:
        centred = audio - audio.mean(dim=1, keepdim=True)
        loud = 0.8 * centred / (centred.abs().amax(dim=1, keepdim=True) + 1e-9)
        return [discriminator(loud) for discriminator in (*self.periods, *self.spectra)]


class Layers(nn.ModuleList):
    """Convolutions, each with a leaky ReLU: what each of them finds, one after the other."""

    def forward(self, x: Tensor) -> Findings:
        found = []
        for layer in self:
            x = F.leaky_relu(layer(x), 0.1)
            found.append(x)
        return found


class PeriodDiscriminator(nn.Module):
    """Convolutions along samples that lie a period apart."""

    def __init__(self, period: int, widths: Sequence[int]) -> None:
        super().__init__()
        self.period = period
        inputs = (1, *widths[:-1])
        strides = (3,) * (len(widths) - 1) + (1,)
        self.layers = Layers(
            convolution(width, wider, (5, 1), (stride, 1))
            for width, wider, stride in zip(inputs, widths, strides, strict=True)
        )
        self.head = convolution(widths[-1], 1, (3, 1))

    def forward(self, audio: Tensor) -> Findings:
        missing = self.period - audio.shape[1] % self.period
        padded = F.pad(audio.unsqueeze(1), (0, missing), mode="reflect")
        x = padded.view(len(audio), 1, -1, self.period)  # (B, 1, S / P, P)
        found: Findings = self.layers(x)
        return [*found, self.head(found[-1])]


class SpectrumDiscriminator(nn.Module):
    """Convolutions over frames and frequencies of the complex spectrum, for each band others."""

    window: Tensor

    def __init__(self, window: int, width: int) -> None:
        super().__init__()
        self.register_buffer("window", torch.hann_window(window), persistent=False)
        frequencies = window // 2 + 1
        ends = [int(end * frequencies) for end in BAND_ENDS]
        self.band_widths = [high - low for low, high in pairwise(ends)]
        self.bands = nn.ModuleList(
            Layers(
                [
                    convolution(2, width, (3, 9)),
                    *(convolution(width, width, (3, 9), (1, 2)) for _ in range(3)),
                    convolution(width, width, (3, 3)),
                ]
            )
            for _ in self.band_widths
        )
        self.head = convolution(width, 1, (3, 3))

    def forward(self, audio: Tensor) -> Findings:
        bands = torch.split(self.spectrum(audio), self.band_widths, dim=3)
        found = [layers(band) for layers, band in zip(self.bands, bands, strict=True)]
        scores: Tensor = self.head(torch.cat([layers[-1] for layers in found], dim=3))
        return [*(x for layers in found for x in layers), scores]

    def spectrum(self, audio: Tensor) -> Tensor:
        """(B, S) to (B, 2, T, K), of as many frames as a hop of a quarter of the window has room for in S samples."""
        size = len(self.window)
        hop = size // 4
        around = (size - hop) // 2
        padded = F.pad(audio.to(self.window.dtype).unsqueeze(1), (around, around), mode="reflect").squeeze(1)
        spectrum = torch.stft(padded, size, hop, window=self.window, center=False, return_complex=True)  # (B, K, T)
        return torch.view_as_real(spectrum).permute(0, 3, 2, 1)


def convolution(inputs: int, outputs: int, size: tuple[int, int], stride: tuple[int, int] = (1, 1)) -> nn.Module:
    """Return a convolution with normalised weights that keeps the size, but for its stride."""
    return weight_norm(nn.Conv2d(inputs, outputs, size, stride, padding=(size[0] // 2, size[1] // 2)))


def discriminator_loss(fake: list[Findings], real: list[Findings]) -> Tensor:
    """Least squares (Mao et al., 2017, arXiv:1611.04076): scores are to be 0 for fakes and 1 for real audio."""
    losses = [one[-1].square().mean() + (1 - other[-1]).square().mean() for one, other in zip(fake, real, strict=True)]
    return torch.stack(losses).sum()


def adversarial_loss(fake: list[Findings]) -> Tensor:
    """The scores of fakes are to be 1."""
    return torch.stack([(1 - one[-1]).square().mean() for one in fake]).sum()


def feature_loss(fake: list[Findings], real: list[Findings]) -> Tensor:
    """The mean absolute differences of what is found before the scores, summed."""
    pairs = [pair for one, other in zip(fake, real, strict=True) for pair in zip(one[:-1], other[:-1], strict=True)]
    return torch.stack([F.l1_loss(one, other.detach()) for one, other in pairs]).sum()
