"""Gemma 3 1B (Gemma Team, 2025, arXiv:2503.19786): trained on next tokens, and generating with a static cache.

Sizes: the configuration of the published weights, https://huggingface.co/google/gemma-3-1b-it, and `Gemma3_1B` of
https://github.com/google-deepmind/gemma. The report's table 1 names 302 million parameters of embeddings and 698
million others. Here: 301,989,888 and 697,896,064, 999,885,952 in all. Five of six layers see a window of 512 tokens,
the sixth sees all.

By our count, a train step of 4 x 1,024 tokens takes 25.9 TFLOP, a prefill 1.50 TFLOP, and a token in decoding 2.08
GFLOP. By hand, training takes 6 operations for each weight and token: 24.6 TFLOP. Attention adds 12 T x T x 1,024 for
each sequence and each of 26 layers: 1.3. (Scores behind the mask or outside of the window are computed, so they count.)
A prefill takes 2 operations for each token and weight of the layers: 1.40 TFLOP (its head reads one token). Attention
adds 0.11. Decoding takes 2.00 GFLOP, and 0.08 for attention to full caches.

The report does not name the optimizer: it is that of `CausalLM`. A prompt of 1,000 tokens is what PyTorch's own
`benchmarks/dynamo` reads in its prefill mode. The cache has room for 2,048 tokens, and for 512 in layers with a window:
when it is full, a token moves them all by one place.
"""

from typing import Any, ClassVar

from torch import nn
from transformers import Gemma3ForCausalLM, Gemma3TextConfig

from .._shared.causal_lm import CausalLM

WINDOW, ALL = "sliding_attention", "full_attention"


class Model(CausalLM):
    train_length = 1024
    prompt_length = 1000
    cache_length = 2048
    sizes: ClassVar[dict[str, Any]] = {
        "vocab_size": 262_144,
        "hidden_size": 1152,
        "intermediate_size": 6912,
        "num_hidden_layers": 26,
        "num_attention_heads": 4,
        "num_key_value_heads": 1,
        "head_dim": 256,
        "query_pre_attn_scalar": 256,
        "sliding_window": 512,
        "layer_types": [ALL if layer % 6 == 0 else WINDOW for layer in range(1, 27)],
        "max_position_embeddings": 32_768,
        "rms_norm_eps": 1e-6,
        "rope_parameters": {
            WINDOW: {"rope_type": "default", "rope_theta": 10_000.0},
            ALL: {"rope_type": "default", "rope_theta": 1_000_000.0},
        },
        "tie_word_embeddings": True,
        "pad_token_id": 0,
        "eos_token_id": 1,
        "bos_token_id": 2,
    }
    small_sizes: ClassVar[dict[str, Any]] = {
        "vocab_size": 1024,
        "hidden_size": 128,
        "intermediate_size": 384,
        "num_hidden_layers": 2,
        "head_dim": 64,
        "query_pre_attn_scalar": 64,
        "sliding_window": 8,
        "layer_types": [WINDOW, ALL],
    }

    def build_network(self) -> nn.Module:
        return Gemma3ForCausalLM(Gemma3TextConfig(**self.sizes))
