"""The loss of Tacotron 2 (Shen et al., 2017, arXiv:1712.05884, section 2.2).

Shape letters: B batch, M mel channels, F frames.
"""

from typing import NamedTuple

from torch import Tensor
from torch.nn import functional as F


class Spectrograms(NamedTuple):
    """What the model predicts."""

    before: Tensor  # (B, M, F), as the decoder makes them
    after: Tensor  # (B, M, F), corrected by the postnet
    stop_logits: Tensor  # (B, F)


def spectrogram_loss(predicted: Spectrograms, mels: Tensor, stop: Tensor, mask: Tensor) -> Tensor:
    """Squared errors before and after the postnet, plus cross entropy of the stop token.

    Args:
        predicted: the model's outputs.
        mels: (B, M, F), zero after the end of each utterance.
        stop: (B, F), 1 at the last frame of each utterance, else 0.
        mask: (B, F), 1 up to that frame, 0 after it, where nothing counts.
    """
    before = F.mse_loss(predicted.before * mask.unsqueeze(1), mels)
    after = F.mse_loss(predicted.after * mask.unsqueeze(1), mels)
    return before + after + F.binary_cross_entropy_with_logits(predicted.stop_logits, stop, weight=mask)
