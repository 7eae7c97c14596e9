"""pytorch_struct against a recursion over single spans, and its work against that of Torch-Struct's CKY."""

from __future__ import annotations

import functools
import math
import sys
from typing import TYPE_CHECKING, Any

import pytest
import torch
from torch import Tensor, nn

from counted_work import CountedWork
from torchzoo.zoo.catalog import find_models, load_model_class

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import ModuleType

N, P, T = 3, 2, 6  # nonterminals, preterminals, tokens of a sentence


@pytest.fixture(scope="module")
def chart() -> ModuleType:
    load_model_class(find_models().spec("pytorch_struct"))
    return sys.modules["torchzoo_models.pytorch_struct.chart"]


class FixedGrammar(nn.Module):
    """Gives the same probabilities for any sentences."""

    def __init__(self, probabilities: Any) -> None:
        super().__init__()
        self.probabilities = probabilities

    def forward(self, _sentences: Tensor) -> Any:
        return self.probabilities


def random_probabilities(chart: ModuleType, sentences: int, n: int, p: int, t: int, **kind: Any) -> Any:
    def draw(*shape: int) -> Tensor:
        return torch.randn(shape, **kind)

    rules = draw(n, (n + p) ** 2).log_softmax(1).view(n, n + p, n + p)
    return chart.LogProbabilities(draw(n).log_softmax(0), rules, draw(sentences, t, p))


def over_all_parses(probabilities: Any, sentence: int, reduce: Callable[[list[float]], float]) -> float:
    """`reduce` (a sum or a maximum of logarithms) over all parses of one sentence, by recursion over its spans."""
    roots, rules, tokens = (tensor.tolist() for tensor in probabilities)

    @functools.cache
    def inside(symbol: int, start: int, end: int) -> float:
        if end - start == 1:
            return tokens[sentence][start][symbol - N] if symbol >= N else -math.inf
        if symbol >= N:
            return -math.inf
        return reduce(
            [
                rules[symbol][left][right] + inside(left, start, split) + inside(right, split, end)
                for split in range(start + 1, end)
                for left in range(N + P)
                for right in range(N + P)
            ]
        )

    return reduce([roots[symbol] + inside(symbol, 0, T) for symbol in range(N)])


def log_sum(logarithms: list[float]) -> float:
    return math.log(sum(map(math.exp, logarithms)))


def test_inside_algorithm_sums_over_all_parses(chart: ModuleType) -> None:
    torch.manual_seed(0)
    probabilities = random_probabilities(chart, 2, N, P, T, dtype=torch.float64)
    found = chart.InsideAlgorithm(FixedGrammar(probabilities))(torch.zeros(2, T, dtype=torch.int64))
    assert found.tolist() == pytest.approx([over_all_parses(probabilities, each, log_sum) for each in range(2)])


def test_parser_finds_the_most_probable_parse(chart: ModuleType) -> None:
    torch.manual_seed(0)
    probabilities = random_probabilities(chart, 4, N, P, T, dtype=torch.float64)
    parses = chart.ViterbiParser(FixedGrammar(probabilities))(torch.zeros(4, T, dtype=torch.int64))
    assert parses.scores.tolist() == pytest.approx([over_all_parses(probabilities, each, max) for each in range(4)])
    for sentence in range(4):
        score = score_of_parse(probabilities, sentence, parses.symbols[sentence].tolist())
        assert score == pytest.approx(parses.scores[sentence].item())


def score_of_parse(probabilities: Any, sentence: int, symbols: list[list[int]]) -> float:
    """The log-probability of one parse; a wrong tree has a span that no two others make up."""
    roots, rules, tokens = (tensor.tolist() for tensor in probabilities)

    def score(start: int, end: int) -> float:
        symbol = symbols[end - start - 1][start]
        if end - start == 1:
            return tokens[sentence][start][symbol - N]
        (split,) = (
            split
            for split in range(start + 1, end)
            if symbols[split - start - 1][start] >= 0 and symbols[end - split - 1][split] >= 0
        )
        children = symbols[split - start - 1][start], symbols[end - split - 1][split]
        return rules[symbol][children[0]][children[1]] + score(start, split) + score(split, end)

    return roots[symbols[T - 1][0]] + score(0, T)


def test_inside_algorithm_does_the_work_of_torch_struct(chart: ModuleType) -> None:
    """Counted so: `CKY(LogSemiring).logpartition` and backward, harvardnlp/pytorch-struct at f4e374e, without genbmm.

    For 10 sentences of 20 tokens, with one grammar. It takes lengths to the host: some 50 small operators more.
    """
    probabilities = random_probabilities(chart, 10, 30, 30, 20, device="meta")
    for tensor in probabilities:
        tensor.requires_grad_()
    with CountedWork() as work:
        chart.InsideAlgorithm(FixedGrammar(probabilities))(torch.zeros(10, 20, device="meta")).mean().backward()
    assert work.bytes_moved == pytest.approx(7_465_878_940, rel=0.01)
    assert work.operators == pytest.approx(1_338, rel=0.05)
