"""BART base (Lewis et al., 2019, arXiv:1910.13461) turning text into text."""

from torch import nn
from transformers import BartConfig, BartForConditionalGeneration

from torchzoo.model.tasks import Seq2SeqLM


class Model(Seq2SeqLM):
    def build_network(self) -> nn.Module:
        config = BartConfig(
            vocab_size=50265,
            d_model=768,
            encoder_layers=6,
            decoder_layers=6,
            encoder_attention_heads=12,
            decoder_attention_heads=12,
            encoder_ffn_dim=3072,
            decoder_ffn_dim=3072,
            max_position_embeddings=1024,
            dropout=0.1,
            attention_dropout=0.1,
            activation_dropout=0.1,
            use_cache=False,
        )
        return BartForConditionalGeneration(config)
