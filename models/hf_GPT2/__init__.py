"""GPT-2 124M (Radford et al., 2019, "Language Models are Unsupervised Multitask Learners"), predicting next tokens."""

from torch import nn
from transformers import GPT2Config, GPT2LMHeadModel

from torchzoo.model.tasks import LanguageModel


class Model(LanguageModel):
    eval_length = 1024

    def build_network(self) -> nn.Module:
        config = GPT2Config(
            vocab_size=50257,
            n_positions=1024,
            n_embd=768,
            n_layer=12,
            n_head=12,
            use_cache=False,
        )
        network = GPT2LMHeadModel(config)
        network.loss_type = "ForCausalLM"  # the library can't tell it from the name of the class
        return network
