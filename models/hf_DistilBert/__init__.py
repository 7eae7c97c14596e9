"""DistilBERT base (Sanh et al., 2019, arXiv:1910.01108) filling in masked tokens."""

from torch import nn
from transformers import DistilBertConfig, DistilBertForMaskedLM

from torchzoo.model.tasks import LanguageModel


class Model(LanguageModel):
    def build_network(self) -> nn.Module:
        config = DistilBertConfig(
            vocab_size=30522,
            dim=768,
            n_layers=6,
            n_heads=12,
            hidden_dim=3072,
            max_position_embeddings=512,
        )
        return DistilBertForMaskedLM(config)
