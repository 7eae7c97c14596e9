"""GPT-2 774M (Radford et al., 2019, "Language Models are Unsupervised Multitask Learners"), predicting next tokens."""

from typing import Any, ClassVar

from torch import nn
from transformers import GPT2Config, GPT2LMHeadModel

from torchzoo.model.tasks import LanguageModel


class Model(LanguageModel):
    eval_length = 1024
    sizes: ClassVar[dict[str, Any]] = {"n_embd": 1280, "n_layer": 36, "n_head": 20}
    small_sizes: ClassVar[dict[str, Any]] = {"n_embd": 64, "n_layer": 2, "n_head": 2}

    def build_network(self) -> nn.Module:
        config = GPT2Config(
            **self.sizes,
            vocab_size=50257,
            n_positions=1024,
            use_cache=False,
        )
        network = GPT2LMHeadModel(config)
        network.loss_type = "ForCausalLM"  # the library can't tell it from the name of the class
        return network
