"""BERT large (Devlin et al., 2018, arXiv:1810.04805) filling in masked tokens."""

from torch import nn
from transformers import BertConfig, BertForMaskedLM

from torchzoo.model.tasks import LanguageModel


class Model(LanguageModel):
    def build_network(self) -> nn.Module:
        config = BertConfig(
            vocab_size=30522,
            hidden_size=1024,
            num_hidden_layers=24,
            num_attention_heads=16,
            intermediate_size=4096,
            max_position_embeddings=512,
            use_cache=False,
        )
        return BertForMaskedLM(config)
