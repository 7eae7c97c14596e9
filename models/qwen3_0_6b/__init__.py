"""Qwen3 0.6B (Qwen Team, 2025, arXiv:2505.09388): trained on next tokens, and generating with a static cache.

Sizes: the report's table 1, and the configuration of the published weights, https://huggingface.co/Qwen/Qwen3-0.6B. The
model card names 0.6 billion parameters, 0.44 billion of them not embeddings. Here: 596,049,920 and 440,467,456. Queries
and keys are normalised, head by head, before the rotary embedding. A head is 128 wide: more than width / heads.

By our count, a train step of 4 x 1,024 tokens takes 17.5 TFLOP, a prefill 1.11 TFLOP, and a token in decoding 1.66
GFLOP. By hand, training takes 6 operations for each weight and token: 14.6 TFLOP. Attention adds 12 T x T x 2,048 (16
heads of 128) for each sequence and each of 28 layers (the masked half counts): 2.9. A prefill takes 2 operations for
each token and weight of the layers: 0.88 TFLOP (its head reads one token). Attention adds 0.23. Decoding takes 1.19
GFLOP, and 0.47 for attention to a full cache.

The report does not name the optimizer: it is that of `CausalLM`. A prompt of 1,000 tokens is what PyTorch's own
`benchmarks/dynamo` reads in its prefill mode, which has this model. The cache has room for 2,048 tokens.
"""

from typing import Any, ClassVar

from torch import nn
from transformers import Qwen3Config, Qwen3ForCausalLM

from .._shared.causal_lm import CausalLM


class Model(CausalLM):
    train_length = 1024
    prompt_length = 1000
    cache_length = 2048
    sizes: ClassVar[dict[str, Any]] = {
        "vocab_size": 151_936,
        "hidden_size": 1024,
        "intermediate_size": 3072,
        "num_hidden_layers": 28,
        "num_attention_heads": 16,
        "num_key_value_heads": 8,
        "head_dim": 128,
        "max_position_embeddings": 40_960,
        "rms_norm_eps": 1e-6,
        "rope_parameters": {"rope_type": "default", "rope_theta": 1_000_000.0},
        "tie_word_embeddings": True,
        "bos_token_id": 151_643,
        "eos_token_id": 151_645,
    }
    small_sizes: ClassVar[dict[str, Any]] = {
        "vocab_size": 1024,
        "hidden_size": 128,
        "intermediate_size": 384,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "head_dim": 64,
        "bos_token_id": 1,
        "eos_token_id": 2,
    }

    def build_network(self) -> nn.Module:
        return Qwen3ForCausalLM(Qwen3Config(**self.sizes))
