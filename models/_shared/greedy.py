"""Greedy decoding of a fixed number of tokens, on the device throughout."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn import functional as F


class Generated(NamedTuple):
    tokens: Tensor  # (B, N)
    scores: Tensor  # (B, N), their log-probabilities


def greedy(step: Callable[[Tensor, Tensor], Tensor], logits: Tensor, *, first: int, count: int) -> Generated:
    """The most probable token, `count` times. No token ends a sequence, so the work does not depend on the weights.

    Args:
        step: from tokens (B, 1) and their position (a tensor of no dimensions) to the logits (B, V) that follow.
        logits: (B, V), those of the first token.
        first: the position of the first token.
        count: how many tokens to choose; `step` is called once less.
    """
    chosen = [most_probable(logits)]
    for position in torch.arange(first, first + count - 1, device=logits.device):
        logits = step(chosen[-1].tokens, position)
        chosen.append(most_probable(logits))
    tokens, scores = zip(*chosen, strict=True)
    return Generated(torch.cat(tokens, dim=1), torch.cat(scores, dim=1))


def most_probable(logits: Tensor) -> Generated:
    """Of logits (B, V), with N = 1."""
    dtype = torch.promote_types(logits.dtype, torch.float32)
    scores, tokens = F.log_softmax(logits, dim=1, dtype=dtype).max(dim=1, keepdim=True)
    return Generated(tokens, scores)
