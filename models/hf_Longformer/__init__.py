"""Longformer base for 4096 tokens (Beltagy et al., 2020, arXiv:2004.05150) filling in masked tokens.

As in the paper's pretraining, all attention is local, in sliding windows of 512 tokens: which tokens attend globally is
a task's choice.
"""

from torch import nn
from transformers import LongformerConfig, LongformerForMaskedLM

from torchzoo.model.tasks import LanguageModel


class Model(LanguageModel):
    train_length = 1024
    eval_length = 4096

    def build_network(self) -> nn.Module:
        config = LongformerConfig(
            vocab_size=50265,
            hidden_size=768,
            num_hidden_layers=12,
            num_attention_heads=12,
            intermediate_size=3072,
            attention_window=512,
            max_position_embeddings=4098,  # position numbers start at 2
            type_vocab_size=1,
            layer_norm_eps=1e-5,
        )
        return LongformerForMaskedLM(config)
