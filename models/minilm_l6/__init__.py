"""all-MiniLM-L6 (Wang et al., 2020, arXiv:2002.10957): sentences to vectors.

Sentence-BERT (Reimers and Gurevych, 2019, arXiv:1908.10084): a BERT of six layers of width 384, whose token vectors are
averaged. Sizes: the configuration of the published weights,
https://huggingface.co/sentence-transformers/all-MiniLM-L6-v2. Their 22.7 million parameters count BERT's pooler
(147,840), which a sentence's vector does not need. Here it is left out: 22,565,376.

Training: pairs of sentences, as sentence-transformers' `MultipleNegativesRankingLoss` has it. The network reads the
first sentences of all pairs, then the second ones. Each first sentence must find its partner among all second ones of
the batch by the cosine of their vectors, multiplied by 20 (cross entropy). The optimizer is that of its `fit`: AdamW, a
learning rate of 2e-5, a weight decay of 0.01 (not of biases and normalisations), gradients clipped to a norm of 1. (The
published weights were trained with 1,024 pairs in a batch, on eight cores of a TPU.)

All sentences have 128 tokens, the length in the authors' training. There is no padding, therefore no mask. By our
count, an eval step of 1,024 sentences takes 2.94 TFLOP, a train step of 256 pairs 4.41. By hand, evaluation takes 2
operations for each token and each of the layers' 10,616,832 weights: 2.783. Attention adds 4 x 128 x 128 x 384 for each
sentence and layer: 0.155. Training takes three times as much for a sentence, and a step has 512.
"""

from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from transformers import BertConfig, BertModel

from torchzoo.case import Mode
from torchzoo.model.attention import attend_alike
from torchzoo.model.tasks import Batch, SupervisedModel

LENGTH, VOCABULARY_SIZE = 128, 30_522
SCALE = 20.0


class SentenceEncoder(nn.Module):
    """Tokens (B, T) to vectors (B, 384) of length 1."""

    def __init__(self) -> None:
        super().__init__()
        config = BertConfig(
            vocab_size=VOCABULARY_SIZE,
            hidden_size=384,
            num_hidden_layers=6,
            num_attention_heads=12,
            intermediate_size=1536,
            max_position_embeddings=512,
        )
        self.bert = BertModel(config, add_pooling_layer=False)
        attend_alike(self.bert)

    def forward(self, tokens: Tensor) -> Tensor:
        states: Tensor = self.bert(input_ids=tokens).last_hidden_state  # (B, T, 384)
        return F.normalize(states.mean(dim=1), dim=1)


def ranking_loss(first: Tensor, second: Tensor) -> Tensor:
    """The cross entropy of finding a row of `second` (B, D) by the same row of `first` (B, D). Rows have length 1."""
    scores = SCALE * first @ second.T  # (B, B)
    return F.cross_entropy(scores, torch.arange(len(scores), device=scores.device))


class Model(SupervisedModel):
    sample_unit = "sentences"
    max_grad_norm = 1.0

    def build_network(self) -> nn.Module:
        return SentenceEncoder()

    def build_batch(self) -> Batch:
        first = self.data.tokens(self.batch_size, LENGTH, VOCABULARY_SIZE)
        if self.mode is Mode.EVAL:
            return Batch((first,))
        return Batch((first,), self.data.tokens(self.batch_size, LENGTH, VOCABULARY_SIZE))

    @property
    def samples_per_step(self) -> int:
        return self.batch_size * (2 if self.mode is Mode.TRAIN else 1)

    def compute_loss(self, outputs: Tensor, targets: Any) -> Tensor:
        return ranking_loss(outputs, self.network(targets))

    def build_optimizer(self) -> torch.optim.Optimizer:
        parameters = list(self.network.parameters())
        groups = [
            {"params": [one for one in parameters if one.ndim >= 2], "weight_decay": 0.01},
            {"params": [one for one in parameters if one.ndim < 2], "weight_decay": 0.0},
        ]
        return torch.optim.AdamW(groups, lr=2e-5)
