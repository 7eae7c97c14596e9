"""BERT base (Devlin et al., 2018, arXiv:1810.04805) filling in masked tokens."""

from torch import nn
from transformers import BertConfig, BertForMaskedLM

from torchzoo.model.tasks import LanguageModel


class Model(LanguageModel):
    def build_network(self) -> nn.Module:
        config = BertConfig(
            vocab_size=30522,
            hidden_size=768,
            num_hidden_layers=12,
            num_attention_heads=12,
            intermediate_size=3072,
            max_position_embeddings=512,
            use_cache=False,
        )
        return BertForMaskedLM(config)
