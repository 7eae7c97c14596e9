"""The transducer loss (Graves, 2012, arXiv:1211.3711, section 2.4).

An alignment walks from frame 0 and no word piece to the last frame and all of them; the blank goes one frame on, a word
piece stays at its frame. The forward variable of equation 16 is a recursion over frames and pieces. For one piece, it
is linear over the frames, so that one cumulative sum of logarithms gives all of them; only the pieces need a loop.

Shape letters: B batch, T frames, U word pieces + 1, V vocabulary size.
"""

import torch
from torch import Tensor
from torch.nn import functional as F

from .network import BLANK


def transducer_loss(logits: Tensor, text: Tensor, frame_counts: Tensor, text_lengths: Tensor) -> Tensor:
    """The mean over the batch of the negative log-likelihoods of the texts.

    Args:
        logits: (B, T, U, V).
        text: (B, U - 1), word pieces; what is there after a text's end does not count.
        frame_counts: (B,), at most T each.
        text_lengths: (B,), at most U - 1 each.
    """
    dtype = torch.promote_types(logits.dtype, torch.float32)
    log_probabilities = F.log_softmax(logits, dim=3, dtype=dtype)
    blank = log_probabilities[..., BLANK]  # (B, T, U)
    index = text[:, None, :, None].expand(-1, logits.shape[1], -1, -1)
    piece = log_probabilities[:, :, :-1].gather(3, index).squeeze(3)  # (B, T, U - 1)

    forward = forward_variables(blank, piece)
    rows = torch.arange(len(logits), device=logits.device)
    last_frame = frame_counts - 1
    log_likelihoods = (forward + blank)[rows, last_frame, text_lengths]  # the last step is a blank
    return -log_likelihoods.mean()


def forward_variables(blank: Tensor, piece: Tensor) -> Tensor:
    """Log-probabilities (B, T, U) of having reached each frame with so many word pieces.

    With the sum b[t] of the blanks before frame t, what comes to frame t from frame s along one piece is worth
    exp(b[t] - b[s]): alpha[t, u] - b[t] is the cumulative sum over s of alpha[s, u - 1] + piece[s, u - 1] - b[s].
    """
    blanks_before = F.pad(blank.cumsum(1)[:, :-1], (0, 0, 1, 0))  # (B, T, U)
    alphas = [blanks_before[:, :, 0]]
    for u in range(1, blank.shape[2]):
        arriving = alphas[-1] + piece[:, :, u - 1] - blanks_before[:, :, u]  # (B, T)
        alphas.append(arriving.logcumsumexp(1) + blanks_before[:, :, u])
    return torch.stack(alphas, dim=2)
