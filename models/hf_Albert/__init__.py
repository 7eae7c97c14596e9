"""ALBERT base, version 2, without dropout (Lan et al., 2019, arXiv:1909.11942) filling in masked tokens."""

from torch import nn
from transformers import AlbertConfig, AlbertForMaskedLM

from torchzoo.model.tasks import LanguageModel


class Model(LanguageModel):
    def build_network(self) -> nn.Module:
        config = AlbertConfig(
            vocab_size=30000,
            embedding_size=128,
            hidden_size=768,
            num_hidden_layers=12,
            num_hidden_groups=1,
            num_attention_heads=12,
            intermediate_size=3072,
            max_position_embeddings=512,
            hidden_dropout_prob=0.0,
            attention_probs_dropout_prob=0.0,
        )
        return AlbertForMaskedLM(config)
