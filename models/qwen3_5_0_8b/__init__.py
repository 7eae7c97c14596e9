"""The text model of Qwen3.5 0.8B (Qwen Team, 2026, https://qwen.ai/blog?id=qwen3.5): trained, and generating.

Of four layers, three are gated delta networks (Yang, Kautz and Hatamizadeh, 2024, arXiv:2412.06464), which keep a state
of fixed size, and one is attention with a gate at its output. Sizes: the model card,
https://huggingface.co/Qwen/Qwen3.5-0.8B. It names 0.8 billion parameters. Here: 752,393,024. The rest of the published
weights, an encoder of images and a layer that predicts a second token, is left out. Positions of text are the same in
all three axes of its rotary embedding.

By our count, a train step of 2 x 1,024 tokens takes 9.85 TFLOP, a prefill 1.09 TFLOP, and a token in decoding 1.61
GFLOP. By hand, training takes 6 operations for each weight and token: 9.24 TFLOP. Each attention layer adds 12 T x T x
2,048 for each sequence: 0.31. The delta rule adds three times 8 c c d + 6 c d d for each head (d = 128) and chunk (c =
64 tokens): 0.29. A prefill takes 0.996 TFLOP for the weights, 0.049 for attention, and 0.048 for the rule. Decoding
takes 1.50 GFLOP, and 0.10 for attention to a full cache. (For one token, the rule is element-wise work, which our count
leaves out.)

No report names the optimizer: it is that of `CausalLM`. A prompt of 1,000 tokens is what PyTorch's own
`benchmarks/dynamo` gives language models (Qwen3 0.6B, for example) in its prefill mode. The cache of the six attention
layers has room for 2,048 tokens; the states begin as they are after four tokens, and go on from step to step.

transformers computes the chunked delta rule by PyTorch's operators, `linalg.solve_triangular` among them, and chunk by
chunk. If the packages flash-linear-attention and causal-conv1d are installed, it calls their kernels instead.
"""

from typing import Any, ClassVar

from torch import nn
from transformers import Qwen3_5ForCausalLM, Qwen3_5TextConfig

from .._shared.causal_lm import CausalLM

DELTA, ATTENTION = "linear_attention", "full_attention"


class Model(CausalLM):
    train_length = 1024
    prompt_length = 1000
    cache_length = 2048
    sizes: ClassVar[dict[str, Any]] = {
        "vocab_size": 248_320,
        "hidden_size": 1024,
        "intermediate_size": 3584,
        "num_hidden_layers": 24,
        "layer_types": [DELTA, DELTA, DELTA, ATTENTION] * 6,
        "num_attention_heads": 8,
        "num_key_value_heads": 2,
        "head_dim": 256,
        "linear_num_key_heads": 16,
        "linear_num_value_heads": 16,
        "linear_key_head_dim": 128,
        "linear_value_head_dim": 128,
        "linear_conv_kernel_dim": 4,
        "max_position_embeddings": 262_144,
        "rms_norm_eps": 1e-6,
        "rope_parameters": {"rope_type": "default", "rope_theta": 10_000_000.0, "partial_rotary_factor": 0.25},
        "tie_word_embeddings": True,
    }
    small_sizes: ClassVar[dict[str, Any]] = {
        "vocab_size": 1024,
        "hidden_size": 128,
        "intermediate_size": 384,
        "num_hidden_layers": 2,
        "layer_types": [DELTA, ATTENTION],
        "num_attention_heads": 4,
        "head_dim": 64,
        "linear_num_key_heads": 4,
        "linear_num_value_heads": 4,
        "linear_key_head_dim": 32,
        "linear_value_head_dim": 32,
    }

    def build_network(self) -> nn.Module:
        return Qwen3_5ForCausalLM(Qwen3_5TextConfig(**self.sizes))
