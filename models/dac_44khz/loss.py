"""The reconstruction loss of DAC (Kumar et al., 2023, arXiv:2306.06546): mel spectrograms at seven resolutions.

Shape letters: B batch, S samples, K frequencies, M mel bins, T frames.
"""

import torch
from torch import Tensor, nn
from torch.nn import functional as F

WINDOWS = (32, 64, 128, 256, 512, 1024, 2048)  # samples; a window begins every quarter of its length
MEL_BINS = (5, 10, 20, 40, 80, 160, 320)


class MelLoss(nn.Module):
    """The mean absolute differences of two signals (B, S) in the logarithms of their mel spectrograms, summed."""

    def __init__(self, sampling_rate: int) -> None:
        super().__init__()
        for window, bins in zip(WINDOWS, MEL_BINS, strict=True):
            self.register_buffer(f"window_{window}", torch.hann_window(window), persistent=False)
            filters = mel_filters(bins, window // 2 + 1, sampling_rate)
            self.register_buffer(f"filters_{window}", filters, persistent=False)

    def forward(self, audio: Tensor, target: Tensor) -> Tensor:
        losses = [F.l1_loss(self.log_mels(audio, window), self.log_mels(target, window)) for window in WINDOWS]
        return torch.stack(losses).sum()

    def log_mels(self, audio: Tensor, window: int) -> Tensor:
        shape: Tensor = self.get_buffer(f"window_{window}")
        spectrum = torch.stft(
            audio.to(shape.dtype), window, hop_length=window // 4, window=shape, pad_mode="reflect", return_complex=True
        )
        mels = self.get_buffer(f"filters_{window}") @ spectrum.abs()  # (M, K) @ (B, K, T)
        return mels.clamp(min=1e-5).log10()


def mel_filters(bins: int, frequencies: int, sampling_rate: int) -> Tensor:
    """(M, K) triangles of equal area between points that are equally spaced on Slaney's mel scale (1998).

    It is linear up to 1 kHz and logarithmic above.
    """
    highest = sampling_rate / 2
    linear_mels = 15.0  # of 200 / 3 Hz, up to 1 kHz
    mels_of_highest = linear_mels + 27 * torch.tensor(highest / 1000).log() / torch.tensor(6.4).log()
    mels = torch.linspace(0, 1, bins + 2) * mels_of_highest
    edges = torch.where(mels < linear_mels, mels * 200 / 3, 1000 * 6.4 ** ((mels - linear_mels) / 27))  # Hz
    frequency = torch.linspace(0, highest, frequencies)
    low, centre, high = (edges[i : bins + i].unsqueeze(1) for i in range(3))
    rising, falling = (frequency - low) / (centre - low), (high - frequency) / (high - centre)
    return torch.minimum(rising, falling).clamp(min=0) * 2 / (high - low)
