"""Llama 3.2 1B (Meta, 2024): trained on next tokens, and generating with a static cache.

Sizes: the model card, https://github.com/meta-llama/llama-models/blob/main/models/llama3_2/MODEL_CARD.md, and the
configuration of the published weights. Architecture: Llama 3 (Grattafiori et al., 2024, arXiv:2407.21783). The card
names 1.23 billion parameters; ours has 1,235,814,400.

By our count, a train step of 4 x 2,048 tokens takes 67.3 TFLOP, a prefill 2.08 TFLOP, and a token in decoding 2.74
GFLOP. By hand, training takes 6 operations for each weight and token: 60.7 TFLOP. Attention adds 12 T x T x 2,048 for
each sequence and each of 16 layers (the masked half counts): 6.6. A prefill takes 2 operations for each token and
weight of the layers: 1.95 TFLOP (its head reads one token). Attention adds 0.13. Decoding takes 2.47 GFLOP, and 0.27
for attention to a full cache.

A prompt of 1,000 tokens is what PyTorch's own `benchmarks/dynamo` reads in its prefill mode. The cache has room for
2,048 tokens.
"""

from typing import Any, ClassVar

from torch import nn
from transformers import LlamaConfig, LlamaForCausalLM

from .._shared.causal_lm import CausalLM


class Model(CausalLM):
    train_length = 2048
    prompt_length = 1000
    cache_length = 2048
    sizes: ClassVar[dict[str, Any]] = {
        "vocab_size": 128_256,
        "hidden_size": 2048,
        "intermediate_size": 8192,
        "num_hidden_layers": 16,
        "num_attention_heads": 32,
        "num_key_value_heads": 8,
        "head_dim": 64,
        "max_position_embeddings": 131_072,
        "rms_norm_eps": 1e-5,
        "rope_parameters": {
            "rope_type": "llama3",
            "rope_theta": 500_000.0,
            "factor": 32.0,
            "low_freq_factor": 1.0,
            "high_freq_factor": 4.0,
            "original_max_position_embeddings": 8192,
        },
        "tie_word_embeddings": True,
        "bos_token_id": 128_000,
        "eos_token_id": 128_001,
    }
    small_sizes: ClassVar[dict[str, Any]] = {
        "hidden_size": 256,
        "intermediate_size": 512,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
    }

    def build_network(self) -> nn.Module:
        return LlamaForCausalLM(LlamaConfig(**self.sizes))
