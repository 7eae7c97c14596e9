"""Sums and maxima over all parses of a sentence, by dynamic programming over its spans.

The inside algorithm (Baker, 1979) and the CKY parser, batched over sentences and over all spans of one width. As in
Torch-Struct's CKY (Rush, 2020, arXiv:2002.00876; github.com/harvardnlp/pytorch-struct, commit f4e374e), sums and maxima
are taken element by element in the semiring of logarithms or of maxima, and the sum over the rules is split by the kind
of the two children: a nonterminal stands for two tokens or more and a preterminal for one, so that a preterminal is a
child of one split only, at the span's first or last token.

Shape letters: B sentences, T tokens, W starts of spans of one width, K their splits in two, N nonterminals, P
preterminals, S = N + P symbols, nonterminals first; L and R symbols of a left and of a right child, N or P of them.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor, nn

from .grammar import LogProbabilities

NO_SYMBOL = -1
LOG_ZERO = -1e4  # finite, for the gradient of a sum of zeros, and in float16's range with another one


class RulesByKind(NamedTuple):
    """The log-probabilities of the nonterminals' rules, a row for each pair of children: (B, L R, N) each."""

    nonterminals: Tensor
    last_token: Tensor  # a nonterminal, then a preterminal
    first_token: Tensor  # a preterminal, then a nonterminal
    tokens: Tensor  # two preterminals


class InsideAlgorithm(nn.Module):
    """Sentences (B, T) to their log-probabilities (B,) under the grammar."""

    def __init__(self, grammar: nn.Module) -> None:
        super().__init__()
        self.grammar = grammar

    def forward(self, sentences: Tensor) -> Tensor:
        roots, rules, tokens = self.grammar(sentences)
        by_kind, chart = split_by_kind(rules, len(sentences)), Chart(tokens, len(roots))
        for width in range(2, chart.length + 1):
            left, right = chart.parts(width)
            first, last = chart.outer_tokens(width)
            sums = [
                log_product(log_product(left.transpose(2, 3), right).flatten(2), by_kind.nonterminals),
                log_product(pairs(left[:, :, -1], last), by_kind.last_token),
                log_product(pairs(first, right[:, :, 0]), by_kind.first_token),
            ]
            if width == 2:
                sums.append(log_product(pairs(first, last), by_kind.tokens))
            chart.put(width, torch.stack(sums, dim=3).logsumexp(3))
        return (chart.sentence() + roots).logsumexp(1)


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
        by_kind, chart = split_by_kind(rules, len(sentences)), Chart(tokens, len(roots))
        pointers = []
        for width in range(2, chart.length + 1):
            nonterminals, back = best_derivations(chart, by_kind, width)
            chart.put(width, nonterminals)
            pointers.append(back)
        scores, symbols = (chart.sentence() + roots).max(1)
        return Parses(scores, follow(pointers, symbols))


class Chart:
    """The log-probabilities of all nonterminals over all spans, LOG_ZERO until they are put.

    They are kept twice, so that the parts of all splits of all spans of one width are slices.
    """

    def __init__(self, tokens: Tensor, nonterminals: int) -> None:
        batch, self.length, _ = tokens.shape
        self.tokens = tokens  # (B, T, P)
        self.by_start = tokens.new_full((batch, self.length, self.length, nonterminals), LOG_ZERO)  # [start, width - 1]
        self.by_end = self.by_start.clone()  # [end, T - width]

    def put(self, width: int, spans: Tensor) -> None:
        """The log-probabilities (B, W, N) over the spans of one width."""
        self.by_start[:, : self.length - width + 1, width - 1] = spans
        self.by_end[:, width - 1 :, self.length - width] = spans

    def parts(self, width: int) -> tuple[Tensor, Tensor]:
        """The left part of each split of each span of one width, the narrowest first, and the right: (B, W, K, N)."""
        count = self.length - width + 1
        return self.by_start[:, :count, : width - 1], self.by_end[:, width - 1 :, count:]

    def outer_tokens(self, width: int) -> tuple[Tensor, Tensor]:
        """The first and the last token of each span of one width: (B, W, P) each."""
        return self.tokens[:, : self.length - width + 1], self.tokens[:, width - 1 :]

    def sentence(self) -> Tensor:
        """(B, N), over the whole sentence."""
        return self.by_start[:, 0, -1]


def split_by_kind(rules: Tensor, sentences: int) -> RulesByKind:
    """Rules (N, S, S) by the kind of their two children, a copy for each sentence: a grammar may depend on it."""
    count = len(rules)
    nonterminal, preterminal = slice(None, count), slice(count, None)
    rules = rules.expand(sentences, *rules.shape)
    return RulesByKind(
        *(
            rules[..., left, right].flatten(2).transpose(1, 2)
            for left in (nonterminal, preterminal)
            for right in (nonterminal, preterminal)
        )
    )


def pairs(left: Tensor, right: Tensor) -> Tensor:
    """Left (B, W, L) and right children (B, W, R) to all pairs of them (B, W, L R)."""
    return (left.unsqueeze(3) + right.unsqueeze(2)).flatten(2)


def log_product(a: Tensor, b: Tensor) -> Tensor:
    """The matrix product (..., I, J) x (..., J, K) of logarithms."""
    return (a.unsqueeze(-1) + b.unsqueeze(-3)).logsumexp(-2)


def best_derivations(chart: Chart, rules: RulesByKind, width: int) -> tuple[Tensor, BackPointers]:
    """Scores (B, W, N) of the best derivations, and what they are made of."""
    left, right = chart.parts(width)
    first, last = chart.outer_tokens(width)
    nonterminals, preterminals = left.shape[3], first.shape[2]
    best_pairs, splits = (left.unsqueeze(4) + right.unsqueeze(3)).max(2)  # (B, W, N, N)

    scores, pair = best_pair(best_pairs.flatten(2), rules.nonterminals)
    split = splits.flatten(2).gather(2, pair) + 1
    found = [(scores, split, pair // nonterminals, pair % nonterminals)]

    scores, pair = best_pair(pairs(left[:, :, -1], last), rules.last_token)
    split = torch.full_like(pair, width - 1)
    found.append((scores, split, pair // preterminals, pair % preterminals + nonterminals))

    scores, pair = best_pair(pairs(first, right[:, :, 0]), rules.first_token)
    found.append((scores, torch.ones_like(pair), pair // nonterminals + nonterminals, pair % nonterminals))

    if width == 2:
        scores, pair = best_pair(pairs(first, last), rules.tokens)
        symbols = pair // preterminals + nonterminals, pair % preterminals + nonterminals
        found.append((scores, torch.ones_like(pair), *symbols))

    all_scores, *pointers = (torch.stack(each, dim=3) for each in zip(*found, strict=True))
    scores, kind = all_scores.max(3, keepdim=True)  # (B, W, N, 1)
    return scores.squeeze(3), BackPointers(*(pointer.gather(3, kind).squeeze(3) for pointer in pointers))


def best_pair(scores: Tensor, rules: Tensor) -> tuple[Tensor, Tensor]:
    """For each nonterminal (B, W, N), the best of all pairs of children (B, W, L R) and its number."""
    return (scores.unsqueeze(3) + rules.unsqueeze(1)).max(2)


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
