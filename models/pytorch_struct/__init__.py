"""A neural probabilistic context-free grammar (Kim, Dyer and Rush, 2019, arXiv:1906.10225), learned from raw sentences.

The example of Torch-Struct (Rush, 2020, arXiv:2002.00876): 30 nonterminals, 30 preterminals, 5,000 words, width 256.
The batch is counted in tokens, as that example's buckets are: `batch_size` tokens in sentences of 20, so that it must
be a multiple of 20. A train step minimises the negative log-likelihood of the sentences, by the inside algorithm, with
the paper's Adam and clipping to a norm of 3. An eval step finds the most probable parse of each sentence (Viterbi).

The network is grammar and chart together, so that what is compiled or counted holds the dynamic programme. Its work is
that of Torch-Struct's CKY (github.com/harvardnlp/pytorch-struct, commit f4e374e, `torch_struct/cky.py`), installed
alone as in the example: sums over rules apart for each kind of children, each taken element by element in logarithms,
not by matrix products of exponentials, which its extension genbmm would allow. Forward and backward, the chart moves as
many bytes (0.1% fewer). The sentences of a batch have one length here; there they may differ.
"""

import torch
from torch import Tensor, nn

from torchzoo.case import Mode
from torchzoo.model.tasks import Batch, SupervisedModel

from .chart import InsideAlgorithm, ViterbiParser
from .grammar import Config, NeuralGrammar


class Model(SupervisedModel):
    sample_unit = "tokens"
    config = Config()
    sentence_length = 20
    max_grad_norm = 3.0

    def build_network(self) -> nn.Module:
        grammar = NeuralGrammar(self.config)
        return InsideAlgorithm(grammar) if self.mode is Mode.TRAIN else ViterbiParser(grammar)

    def build_batch(self) -> Batch:
        sentences, rest = divmod(self.batch_size, self.sentence_length)
        if rest:
            raise ValueError(f"the batch is of sentences of {self.sentence_length} tokens, not of {self.batch_size}")
        return Batch((self.data.tokens(sentences, self.sentence_length, self.config.vocabulary_size),))

    def compute_loss(self, outputs: Tensor, targets: None) -> Tensor:
        return -outputs.mean()

    def build_optimizer(self) -> torch.optim.Optimizer:
        return torch.optim.Adam(self.network.parameters(), lr=1e-3, betas=(0.75, 0.999))
