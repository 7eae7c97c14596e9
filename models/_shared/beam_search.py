"""Beam search of a fixed number of steps, on the device throughout.

It never asks whether all hypotheses have ended: one that has ended continues unchanged. So the work does not depend on
the weights, and nothing waits for the device.

Shape letters: B batch, K beam size, T length, V vocabulary size.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.nn import functional as F
from torch.utils._pytree import tree_map


class Hypotheses(NamedTuple):
    """Best first."""

    tokens: Tensor  # (B, K, T), without the start token; the end token fills what follows the end
    scores: Tensor  # (B, K), log-probabilities


def beam_search(
    step: Callable[[Tensor, Tensor, Any], tuple[Tensor, Any]],
    state: Any,
    start: Tensor,
    *,
    beam_size: int,
    length: int,
    end_token: int,
) -> Hypotheses:
    """The most probable sequences of `length` tokens, by beam search without length normalisation.

    Args:
        step: from tokens (B K,), their position (a tensor of no dimensions) and the state to logits (B K, V) and the
            new state.
        state: nested tensors whose first dimension is B K; it follows the hypotheses.
        start: (B,), the tokens to start from.
        beam_size: K; 1 is greedy decoding.
        length: steps to do.
        end_token: what ends a hypothesis.
    """
    batch_size, device = len(start), start.device
    tokens = start.unsqueeze(1).expand(-1, beam_size)
    scores = torch.zeros(batch_size, beam_size, device=device)
    scores[:, 1:] = float("-inf")  # at first all hypotheses of a beam are the same: only one may be continued
    ended = torch.zeros(batch_size, beam_size, dtype=torch.bool, device=device)
    history = torch.full((batch_size, beam_size, length), end_token, device=device)
    first_of_beam = torch.arange(0, batch_size * beam_size, beam_size, device=device).unsqueeze(1)
    for index, position in enumerate(torch.arange(length, device=device)):
        logits, state = step(tokens.flatten(), position, state)
        candidates = continuations(logits.view(batch_size, beam_size, -1), scores, ended, end_token)
        scores, best = candidates.flatten(1).topk(beam_size)
        parents, tokens = best // logits.shape[1], best % logits.shape[1]
        chosen = (first_of_beam + parents).flatten()
        state = tree_map(lambda tensor, chosen=chosen: tensor.index_select(0, chosen), state)
        ended = ended.gather(1, parents) | (tokens == end_token)
        history = history.flatten(0, 1).index_select(0, chosen).view_as(history)
        history[:, :, index] = tokens
    return Hypotheses(history, scores)


def continuations(logits: Tensor, scores: Tensor, ended: Tensor, end_token: int) -> Tensor:
    """Scores (B, K, V) of all one-token continuations: an ended hypothesis has one, which costs nothing."""
    dtype = torch.promote_types(logits.dtype, torch.float32)
    log_probabilities = F.log_softmax(logits, dim=2, dtype=dtype)
    itself = torch.full_like(log_probabilities[0, 0], float("-inf"))
    itself[end_token].fill_(0.0)  # (assigning a number would wait for the device)
    return scores.unsqueeze(2) + torch.where(ended.unsqueeze(2), itself, log_probabilities)
