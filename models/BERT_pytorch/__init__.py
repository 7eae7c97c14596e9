"""BERT (Devlin et al., 2018, arXiv:1810.04805), written plainly, pre-trained on pairs of sentences.

The size of BERT base with a vocabulary of 20,005 words, as the small PyTorch implementation that the model is named
after has it on its own corpus; it departs from the paper as that one does (see `network.py`). A sample is a pair of
sentences of 96 to 128 tokens together, padded to 128; 15% of the tokens are masked and to be predicted. A train step
minimises both losses, of the masked tokens and of whether the second sentence follows the first, with Adam at the
implementation's learning rate. An eval step computes the logits of both heads, and no loss.
"""

from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from torchzoo.model.tasks import Batch, SupervisedModel

from .network import Bert, Config, Logits

FIRST_WORD, MASK = 5, 4  # tokens; 0 is the padding
NOT_MASKED = -100  # a label that the loss leaves out


class Targets(NamedTuple):
    masked_tokens: Tensor  # (B, T), NOT_MASKED where there is nothing to predict
    is_next: Tensor  # (B,)


class Model(SupervisedModel):
    sample_unit = "sequences"
    config = Config()
    shortest = 96
    masked_share = 0.15

    def build_network(self) -> nn.Module:
        return Bert(self.config)

    def build_batch(self) -> Batch:
        batch_size, length = self.batch_size, self.config.length
        words = self.data.integers(FIRST_WORD, self.config.vocabulary_size, batch_size, length)
        lengths = self.data.integers(self.shortest, length + 1, batch_size, 1)
        is_masked = self.data.uniform(batch_size, length) < self.masked_share
        is_next = self.data.labels(batch_size, 2)

        place = torch.arange(length)
        is_padding = place >= lengths
        segments = (1 + (place >= lengths // 2).long()).masked_fill(is_padding, 0)
        tokens = words.masked_fill(is_masked, MASK).masked_fill(is_padding, 0)
        labels = words.masked_fill(~is_masked | is_padding, NOT_MASKED)
        return Batch((tokens, segments), Targets(labels, is_next))

    def compute_loss(self, outputs: Logits, targets: Targets) -> Tensor:
        masked_tokens, is_next = targets
        token_loss = F.cross_entropy(outputs.tokens.flatten(0, 1), masked_tokens.flatten(), ignore_index=NOT_MASKED)
        return token_loss + F.cross_entropy(outputs.is_next, is_next)

    def build_optimizer(self) -> torch.optim.Optimizer:
        return torch.optim.Adam(self.network.parameters(), lr=1e-3, weight_decay=0.01)
