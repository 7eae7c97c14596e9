"""A context-free grammar whose rule probabilities come from embeddings of its symbols.

After Kim, Dyer and Rush (2019, arXiv:1906.10225, section 2.2), binary rules by a table of embedded pairs, as
Torch-Struct's example has it.

Shape letters: B sentences, T tokens, C width, N nonterminals, P preterminals, S = N + P symbols (nonterminals first),
V vocabulary size.
"""

from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional as F


@dataclass(frozen=True, kw_only=True)
class Config:
    vocabulary_size: int = 5000
    nonterminals: int = 30
    preterminals: int = 30
    width: int = 256


class LogProbabilities(NamedTuple):
    roots: Tensor  # (N,), of a sentence's being this
    rules: Tensor  # (N, S, S), of a nonterminal's becoming this pair
    tokens: Tensor  # (B, T, P), of a preterminal's becoming the token here


class NeuralGrammar(nn.Module):
    """Sentences (B, T) to the log-probabilities that their parses are made of."""

    def __init__(self, config: Config) -> None:
        super().__init__()
        c = config
        symbols = c.nonterminals + c.preterminals
        self.start = nn.Parameter(torch.empty(1, c.width))
        self.root = nn.Parameter(torch.empty(c.nonterminals, c.width))
        self.nonterminal = nn.Parameter(torch.empty(c.nonterminals, c.width))
        self.pair = nn.Parameter(torch.empty(symbols * symbols, c.width))
        self.preterminal = nn.Parameter(torch.empty(c.preterminals, c.width))
        self.word = nn.Parameter(torch.empty(c.vocabulary_size, c.width))
        self.root_mlp = ResidualMLP(c.width)
        self.preterminal_mlp = ResidualMLP(c.width)
        self.symbols = symbols
        for parameter in self.parameters():
            if parameter.ndim > 1:
                nn.init.xavier_uniform_(parameter)

    def forward(self, sentences: Tensor) -> LogProbabilities:
        roots = F.linear(self.start, self.root_mlp(self.root)).squeeze(0)
        rules = F.linear(self.nonterminal, self.pair)  # (N, S S)
        words = F.linear(self.preterminal_mlp(self.preterminal), self.word)  # (P, V)
        return LogProbabilities(
            roots.log_softmax(0),
            rules.log_softmax(1).view(-1, self.symbols, self.symbols),
            F.embedding(sentences, words.log_softmax(1).T),
        )


class ResidualMLP(nn.Module):
    """(..., C) to the same shape: a linear layer and two residual blocks of two layers each."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.input = nn.Linear(width, width)
        self.blocks = nn.ModuleList(
            nn.Sequential(nn.Linear(width, width), nn.ReLU(), nn.Linear(width, width), nn.ReLU()) for _ in range(2)
        )

    def forward(self, x: Tensor) -> Tensor:
        x = self.input(x)
        for block in self.blocks:
            x = x + block(x)
        return x
