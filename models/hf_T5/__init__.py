"""T5-small (Raffel et al., 2019, arXiv:1910.10683) turning text into text."""

from torch import nn
from transformers import T5Config, T5ForConditionalGeneration

from torchzoo.model.tasks import Seq2SeqLM


class Model(Seq2SeqLM):
    train_length = 1024
    eval_length = 2048

    def build_network(self) -> nn.Module:
        config = T5Config(  # type: ignore[call-arg]
            vocab_size=32128,
            d_model=512,
            d_kv=64,
            d_ff=2048,
            num_layers=6,
            num_heads=8,
            decoder_start_token_id=0,
            use_cache=False,
        )
        return T5ForConditionalGeneration(config)
