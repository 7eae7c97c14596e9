"""T5-large (Raffel et al., 2019, arXiv:1910.10683) turning text into text."""

from torch import nn
from transformers import T5Config, T5ForConditionalGeneration

from torchzoo.model.tasks import Seq2SeqLM


class Model(Seq2SeqLM):
    def build_network(self) -> nn.Module:
        config = T5Config(  # type: ignore[call-arg]
            vocab_size=32128,
            d_model=1024,
            d_kv=64,
            d_ff=4096,
            num_layers=24,
            num_heads=16,
            decoder_start_token_id=0,
            use_cache=False,
        )
        return T5ForConditionalGeneration(config)
