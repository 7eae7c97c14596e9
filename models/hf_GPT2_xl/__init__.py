"""GPT-2 1.5B (Radford et al., 2019, "Language Models are Unsupervised Multitask Learners"), predicting next tokens.

Sizes: 48 layers of 25 heads, width 1,600, 50,257 words: 1,557,611,200 parameters. The paper's table 2 names 1,542
million. OpenAI wrote later that the paper's counts are wrong (https://github.com/openai/gpt-2), and calls the released
weights `1558M`. A sequence has 512 tokens here, half of those that the network has positions for.

By our count, an eval step takes 1.67 TFLOP, a train step 5.02. By hand, evaluation takes 2 operations for each of 512
tokens and 1,554,971,200 weights (1,474,560,000 in the layers, 80,411,200 in the head): 1.59. Attention adds 4 x 512 x
512 x 1,600 in each layer (the masked half counts): 0.08. Training takes three times as much.
"""

from typing import Any, ClassVar

from torch import nn
from transformers import GPT2Config, GPT2LMHeadModel

from torchzoo.model.tasks import LanguageModel


class Model(LanguageModel):
    sizes: ClassVar[dict[str, Any]] = {"n_embd": 1600, "n_layer": 48, "n_head": 25}
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
