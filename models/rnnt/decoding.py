"""Greedy decoding of a transducer (Graves, 2012, arXiv:1211.3711), for a batch, on the device throughout.

Shape letters: B batch, T encoded frames, E encoder width, P prediction width, V vocabulary size, D decisions.
"""

from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from .network import BLANK

MAX_PIECES_PER_FRAME = 30


class Transcripts(NamedTuple):
    pieces: Tensor  # (B, D), a word piece or the blank for each decision
    scores: Tensor  # (B,), log-probabilities of these decisions


def greedy_decode(
    prediction: nn.Module, joint: nn.Module, encoded: Tensor, frame_counts: Tensor, decisions: int
) -> Transcripts:
    """The most probable symbol, `decisions` times: a blank moves on to the next frame, a word piece to the next text.

    After 30 pieces at one frame, decoding moves on to the next frame. After an utterance's last frame, all symbols are
    blanks.

    Args:
        prediction: pieces (B, 1) and a state to predictions (B, 1, P) and the next state.
        joint: frames (B, 1, E) and predictions (B, 1, P) to logits (B, 1, 1, V).
        encoded: (B, T, E).
        frame_counts: (B,), at most T each.
        decisions: how many to make for each utterance.
    """
    rows = torch.arange(len(encoded), device=encoded.device)
    frame = torch.zeros_like(frame_counts)
    pieces_at_frame = torch.zeros_like(frame_counts)
    predicted, state = prediction(torch.full_like(rows, BLANK).unsqueeze(1), None)
    pieces, scores = [], []
    for _ in range(decisions):
        is_over = frame >= frame_counts
        logits = joint(encoded[rows, frame.clamp(max=encoded.shape[1] - 1)].unsqueeze(1), predicted).flatten(1)
        dtype = torch.promote_types(logits.dtype, torch.float32)
        score, piece = F.log_softmax(logits, dim=1, dtype=dtype).max(1)
        piece = piece.masked_fill(is_over, BLANK)
        pieces.append(piece)
        scores.append(score.masked_fill(is_over, 0.0))

        is_piece = piece != BLANK
        next_predicted, next_state = prediction(piece.unsqueeze(1), state)
        predicted = torch.where(is_piece[:, None, None], next_predicted, predicted)
        state = tuple(
            torch.where(is_piece[:, None], after, before) for after, before in zip(next_state, state, strict=True)
        )
        pieces_at_frame = pieces_at_frame + is_piece
        moves_on = ~is_piece | (pieces_at_frame == MAX_PIECES_PER_FRAME)
        frame = frame + moves_on
        pieces_at_frame = pieces_at_frame.masked_fill(moves_on, 0)
    return Transcripts(torch.stack(pieces, dim=1), torch.stack(scores).sum(0))
