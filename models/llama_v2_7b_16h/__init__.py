"""Llama 2 7B (Touvron et al., 2023, arXiv:2307.09288) with 16 of its 32 layers, predicting next tokens.

Sizes: transformers' defaults for Llama, which are those of the published 7B weights (width 4,096, 32 heads, inner width
11,008, vocabulary 32,000). TorchBench (https://github.com/pytorch/benchmark at 0e83c44) halved the number of layers,
not of heads, so that training fits its GPUs: 3,500,281,856 of 6,738,415,616 parameters are left. Its lengths and its
optimizer are taken over: 128 tokens and plain SGD at 1e-3 in training, 512 tokens in evaluation, where the logits of
all are computed at once. (`llama3_2_1b` generates.)

By our count, a train step takes 2.60 TFLOP and an eval step 3.52. By hand, training takes 6 operations for each of 128
tokens and 3,369,074,688 weights (all but the table of embeddings): 2.587. Attention adds 12 x 128 x 128 x 4,096 in each
layer: 0.013. An eval step takes 2 operations for each of 512 tokens and these weights: 3.450. Attention adds 4 x 512 x
512 x 4,096 in each layer: 0.069.
"""

from typing import Any, ClassVar

import torch
from torch import nn
from transformers import LlamaConfig, LlamaForCausalLM

from torchzoo.model.tasks import LanguageModel


class Model(LanguageModel):
    train_length = 128
    sizes: ClassVar[dict[str, Any]] = {
        "vocab_size": 32_000,
        "hidden_size": 4096,
        "intermediate_size": 11_008,
        "num_hidden_layers": 16,
        "num_attention_heads": 32,
        "max_position_embeddings": 2048,
        "use_cache": False,
    }
    small_sizes: ClassVar[dict[str, Any]] = {
        "vocab_size": 1000,
        "hidden_size": 64,
        "intermediate_size": 128,
        "num_hidden_layers": 2,
        "num_attention_heads": 2,
    }

    def build_network(self) -> nn.Module:
        return LlamaForCausalLM(LlamaConfig(**self.sizes))

    def build_optimizer(self) -> torch.optim.Optimizer:
        return torch.optim.SGD(self.network.parameters(), lr=1e-3)
