"""XLM-RoBERTa base (Conneau et al., 2019, arXiv:1911.02116) filling in masked tokens.

Sizes: the published configuration, https://huggingface.co/FacebookAI/xlm-roberta-base. The paper names 270 million
parameters, a rounded number: its configuration has 277,453,056, two thirds of them in the table of 250,002 embeddings.
With the head, ours has 278,295,186. TorchBench's `hf_Roberta_base` (https://github.com/pytorch/benchmark at 0e83c44) is
this network, too, and not RoBERTa base of 125 million parameters. Its lengths, batches and optimizer are taken over:
512 tokens, Adam at 1e-3.

By our count, an eval step takes 294 GFLOP, a train step of 4 sequences 3.53 TFLOP. By hand, evaluation takes 2
operations for each token and weight: 87 GFLOP for the layers' 84.9 million, 197 for the head's 192.6 million. Attention
adds 4 x 512 x 512 x 768 in each layer: 10. Training takes three times as much for a sequence.
"""

from typing import Any, ClassVar

from torch import nn
from transformers import XLMRobertaConfig, XLMRobertaForMaskedLM

from torchzoo.model.tasks import LanguageModel


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
