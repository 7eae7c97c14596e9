"""Sums and maxima over all parses of a sentence, by dynamic programming over its spans.

The inside algorithm (Baker, 1979) and the CKY parser, batched over sentences and over all spans of one width; products
in the semiring of logarithms are matrix products of exponentials (Rush, 2020, arXiv:2002.00876, section 6).

Shape letters: B sentences, T tokens, W starts of spans of one width, K their splits in two, N nonterminals, P
preterminals, S = N + P symbols, nonterminals first.
"""

from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from .grammar import LogProbabilities

NO_SYMBOL = -1


class InsideAlgorithm(nn.Module):
    """Sentences (B, T) to their log-probabilities (B,) under the grammar."""

    def __init__(self, grammar: nn.Module) -> None:
        super().__init__()
        self.grammar = grammar

    def forward(self, sentences: Tensor) -> Tensor:
        roots, rules, tokens = self.grammar(sentences)
        length = sentences.shape[1]
        rules_transposed = rules.flatten(1).exp().T  # (S S, N), probabilities
        spans = [single_tokens(tokens, len(roots))]  # of width 1, then 2, ...; (B, W, S) each
        for width in range(2, length + 1):
            left, right = halves(spans, width)  # (B, W, K, S) each
            left_scale, right_scale = left.detach().amax(3, keepdim=True), right.detach().amax(3, keepdim=True)
            split_scale = left_scale + right_scale
            scale = split_scale.amax(2, keepdim=True)  # (B, W, 1, 1)
            left = (left - left_scale + split_scale - scale).exp()
            right = (right - right_scale).exp()
            pairs = left.transpose(2, 3) @ right  # (B, W, S, S), summed over splits
            nonterminals = (pairs.flatten(2) @ rules_transposed).log() + scale.squeeze(3)
            spans.append(with_preterminals(nonterminals, tokens.shape[2]))
        sentence = spans[-1][:, 0, : len(roots)]  # (B, N)
        return (sentence + roots).logsumexp(1)


class Parses(NamedTuple):
    scores: Tensor  # (B,), log-probabilities
    symbols: Tensor  # (B, T, T): the symbol of the span of width w + 1 from s on, at [w, s]; NO_SYMBOL if it is none


class BackPointers(NamedTuple):
    """What the best derivation of each nonterminal over each span of one width is made of; (B, W, N) each."""

    split: Tensor  # the width of the left part
    left: Tensor  # its symbol
    right: Tensor


class ViterbiParser(nn.Module):
    """Sentences (B, T) to their most probable parses."""

    def __init__(self, grammar: nn.Module) -> None:
        super().__init__()
        self.grammar = grammar

    def forward(self, sentences: Tensor) -> Parses:
        probabilities: LogProbabilities = self.grammar(sentences)
        roots, rules, tokens = probabilities
        spans = [single_tokens(tokens, len(roots))]
        pointers = []
        for width in range(2, sentences.shape[1] + 1):
            nonterminals, back = best_derivations(spans, rules, width)
            spans.append(with_preterminals(nonterminals, tokens.shape[2]))
            pointers.append(back)
        scores, symbols = (spans[-1][:, 0, : len(roots)] + roots).max(1)
        return Parses(scores, follow(pointers, symbols))


def best_derivations(spans: list[Tensor], rules: Tensor, width: int) -> tuple[Tensor, BackPointers]:
    """Scores (B, W, N) of the best derivations, and what they are made of."""
    left, right = halves(spans, width)
    pairs, splits = (left.unsqueeze(4) + right.unsqueeze(3)).max(2)  # (B, W, S, S)
    scores, pair = (pairs.unsqueeze(2) + rules).flatten(3).max(3)  # (B, W, N)
    symbols = rules.shape[1]
    return scores, BackPointers(splits.flatten(2).gather(2, pair) + 1, pair // symbols, pair % symbols)


def follow(pointers: list[BackPointers], root_symbols: Tensor) -> Tensor:
    """The symbols (B, T, T) of the spans of the parses whose roots are given (B,): from the widest span down.

    All spans of a width are looked at together; those that are in no parse write into one cell more, that is cut off.
    """
    batch, length = len(root_symbols), len(pointers) + 1
    cells = length * length
    symbols = root_symbols.new_full((batch, cells + 1), NO_SYMBOL)
    symbols[:, (length - 1) * length] = root_symbols
    for width in range(length, 1, -1):
        starts = torch.arange(length - width + 1, device=symbols.device)
        first = (width - 1) * length
        symbol = symbols[:, first : first + len(starts)].unsqueeze(2)  # (B, W, 1)
        split, left, right = (pointer.gather(2, symbol.clamp(min=0)).squeeze(2) for pointer in pointers[width - 2])
        is_used = symbol.squeeze(2) != NO_SYMBOL
        left_cell = (split - 1) * length + starts
        right_cell = (width - split - 1) * length + starts + split
        symbols = symbols.scatter(1, left_cell.where(is_used, cells), left)
        symbols = symbols.scatter(1, right_cell.where(is_used, cells), right)
    return symbols[:, :-1].reshape(batch, length, length)


def halves(spans: list[Tensor], width: int) -> tuple[Tensor, Tensor]:
    """The left and the right part of each split of each span of `width`: (B, W, K, S) each."""
    count = spans[0].shape[1] - width + 1
    left = [spans[split - 1][:, :count] for split in range(1, width)]
    right = [spans[width - split - 1][:, split : split + count] for split in range(1, width)]
    return torch.stack(left, dim=2), torch.stack(right, dim=2)


def single_tokens(tokens: Tensor, nonterminals: int) -> Tensor:
    """(B, T, P) to (B, T, S): no nonterminal stands for one token alone."""
    return F.pad(tokens, (nonterminals, 0), value=float("-inf"))


def with_preterminals(spans: Tensor, preterminals: int) -> Tensor:
    """(B, W, N) to (B, W, S): no preterminal stands for more than one token."""
    return F.pad(spans, (0, preterminals), value=float("-inf"))
