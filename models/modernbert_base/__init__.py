"""ModernBERT base (Warner et al., 2024, arXiv:2412.13663) filling in masked tokens.

An encoder with rotary positions and gated layers. Of three layers, one sees all tokens, and two see 64 to either side.
Sizes: transformers' defaults, which are the configuration of the published weights. The paper's table 4 and its text
name 22 layers and 149 million parameters. Here: 149,655,232.

By our count, a train step of 32 x 512 tokens takes 16.4 TFLOP, an eval step of 64 x 1,024 tokens 24.1. By hand,
training takes 6 operations for each token and weight: 10.8 TFLOP for the layers' 110.3 million and 3.9 for the head's
39.3 million. Attention adds 12 T x T x 768 for each sequence and layer (scores outside of windows count): 1.7.
Evaluation takes 2 operations for each token and weight, and 4 T x T x 768: 14.5, 5.1 and 4.5.

Training: 30% of all tokens are masked, and only these count in the loss. The optimizer is the authors': StableAdamW, a
learning rate of 8e-4, betas of 0.9 and 0.98, an epsilon of 1e-6, a weight decay of 1e-5, not of biases and
normalisations (https://github.com/AnswerDotAI/ModernBERT, `yamls/modernbert/modernbert-base-pretrain.yaml`).

The authors' training differs from the configuration that they published with the weights. Ours follows the published
configuration: it computes the logits of all tokens (`sparse_prediction` is false; the authors trained with logits of
masked tokens only), and it has no dropout (the authors trained with 0.1 behind attention).

Also different from the authors' training: sequences have 512 tokens (there: 1,024, in the first stage). The authors
pack sequences without padding into one row, for Flash Attention. Here all sequences have the same length, and layers
with a window compute all scores and mask them, in PyTorch's attention.
"""

from typing import Any

import torch
from torch import nn
from transformers import ModernBertConfig, ModernBertForMaskedLM

from torchzoo.case import Mode
from torchzoo.model.tasks import Batch, LanguageModel

from .optimizer import StableAdamW

MASKED_SHARE = 0.3
MASK = 50_284  # the tokenizer's [MASK]
NO_TARGET = -100


class Model(LanguageModel):
    train_length = 512
    eval_length = 1024

    def build_network(self) -> nn.Module:
        return ModernBertForMaskedLM(ModernBertConfig())

    def build_batch(self) -> Batch:
        if self.mode is Mode.EVAL:
            return super().build_batch()
        text = self.data.tokens(self.batch_size, self.train_length, ModernBertConfig().vocab_size)
        is_masked = self.data.uniform(self.batch_size, self.train_length) < MASKED_SHARE
        labels = text.masked_fill(~is_masked, NO_TARGET)
        return Batch({"input_ids": text.masked_fill(is_masked, MASK), "labels": labels})

    def build_optimizer(self) -> torch.optim.Optimizer:
        parameters = list(self.network.parameters())
        groups: list[dict[str, Any]] = [
            {"params": [one for one in parameters if one.ndim >= 2], "weight_decay": 1e-5},
            {"params": [one for one in parameters if one.ndim < 2]},
        ]
        return StableAdamW(groups, lr=8e-4, betas=(0.9, 0.98), eps=1e-6)
