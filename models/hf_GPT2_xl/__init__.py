"""GPT-2 1.5B (Radford et al., 2019, "Language Models are Unsupervised Multitask Learners"), predicting next tokens."""

from torch import nn
from transformers import GPT2Config, GPT2LMHeadModel

from torchzoo.tasks import LanguageModel


class Model(LanguageModel):
    def build_network(self) -> nn.Module:
        config = GPT2Config(
            vocab_size=50257,
            n_positions=1024,
            n_embd=1600,
            n_layer=48,
            n_head=25,
            use_cache=False,
        )
        network = GPT2LMHeadModel(config)
        network.loss_type = "ForCausalLM"  # which the library can't tell from the class's name
        return network
