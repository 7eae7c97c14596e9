"""XLM-RoBERTa base (Conneau et al., 2019, arXiv:1911.02116) filling in masked tokens.

Sizes: the published configuration, https://huggingface.co/FacebookAI/xlm-roberta-base. The paper counts 270 million
parameters; ours has 278,295,186, two thirds of them in the table of 250,002 embeddings. TorchBench's `hf_Roberta_base`
(https://github.com/pytorch/benchmark at 0e83c44) is this network, too, and not RoBERTa base of 125 million parameters.
Its lengths, batches and optimizer are taken over: 512 tokens, Adam at 1e-3.
"""

from typing import Any, ClassVar

from torch import nn
from transformers import XLMRobertaConfig, XLMRobertaForMaskedLM

from torchzoo.tasks import LanguageModel


class Model(LanguageModel):
    sizes: ClassVar[dict[str, Any]] = {
        "vocab_size": 250_002,
        "hidden_size": 768,
        "num_hidden_layers": 12,
        "num_attention_heads": 12,
        "intermediate_size": 3072,
        "max_position_embeddings": 514,  # position numbers start at 2
        "type_vocab_size": 1,
        "layer_norm_eps": 1e-5,
        "use_cache": False,
    }
    small_sizes: ClassVar[dict[str, Any]] = {
        "vocab_size": 1000,
        "hidden_size": 64,
        "num_hidden_layers": 2,
        "num_attention_heads": 2,
        "intermediate_size": 128,
    }

    def build_network(self) -> nn.Module:
        return XLMRobertaForMaskedLM(XLMRobertaConfig(**self.sizes))
