"""Llama 3.1 8B (Grattafiori et al., 2024, arXiv:2407.21783), frozen, with trained adapters (Hu et al., 2021).

Sizes: the model card, https://github.com/meta-llama/llama-models/blob/main/models/llama3_1/MODEL_CARD.md, and the
configuration of the published weights: 8,030,261,248 parameters (there: 8 billion). The adapters of the four
projections of each attention (q, k, v, o) have 13,631,488: 8,043,892,736 in all. Only the adapters have gradients and
an optimizer.

Rank, alpha, layers and optimizer are those of MLPerf's `llama2_70b_lora`: rank 16, alpha 32, all projections of
attention, AdamW with a learning rate of 4e-4 and a weight decay of 1e-4, gradients clipped to a norm of 0.3, only the
inputs of layers kept for the backward pass. Different: there is no dropout of 0.1 before an adapter; 2 sequences of
2,048 tokens, not one of 8,192. The backward pass goes through all layers, down to the adapters of the first one. In
each it computes the gradients of the activations and of the adapters, but of no frozen weight.

A step takes 182.6 TFLOP by our count. By hand, the 6.98 billion frozen weights of the layers take 6 operations for each
token: 2 in the forward pass, 2 where it is computed again, 2 for gradients of activations. That is 171.52 TFLOP. Those
of the head take 4 (8.61 TFLOP), the adapters 8 (0.45). Attention adds 17.59. Two things need not be computed: the last
product of each layer a second time (15.39), and the gradient of the first layer's input (0.21).

Everything is built in bfloat16, the adapters too, as torchtune's recipes do. A precision label tells the dtype of all
weights, frozen ones included. So `bf16` is the model as it is built. `fp32`, `tf32` and `fp16` cast the frozen weights,
too. No other label is true of it: see the skips of `metadata.yaml`.
"""

from typing import Any, ClassVar

import torch
from torch import nn
from transformers import AutoModelForCausalLM, LlamaConfig

from .._shared.causal_lm import CausalLM
from .network import adapt


class Model(CausalLM):
    train_length = 2048
    checkpoints_layers = True
    learning_rate = 4e-4
    betas = (0.9, 0.999)
    epsilon = 1e-8
    weight_decay = 1e-4
    max_grad_norm = 0.3
    rank, alpha = 16, 32
    adapted = ("q_proj", "k_proj", "v_proj", "o_proj")
    sizes: ClassVar[dict[str, Any]] = {
        "vocab_size": 128_256,
        "hidden_size": 4096,
        "intermediate_size": 14_336,
        "num_hidden_layers": 32,
        "num_attention_heads": 32,
        "num_key_value_heads": 8,
        "max_position_embeddings": 131_072,
        "rms_norm_eps": 1e-5,
        "rope_parameters": {
            "rope_type": "llama3",
            "rope_theta": 500_000.0,
            "factor": 8.0,
            "low_freq_factor": 1.0,
            "high_freq_factor": 4.0,
            "original_max_position_embeddings": 8192,
        },
        "tie_word_embeddings": False,
        "bos_token_id": 128_000,
        "eos_token_id": 128_001,
    }
    small_sizes: ClassVar[dict[str, Any]] = {
        "vocab_size": 1024,
        "hidden_size": 128,
        "intermediate_size": 384,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "bos_token_id": 1,
        "eos_token_id": 2,
    }

    def build_network(self) -> nn.Module:
        network: nn.Module = AutoModelForCausalLM.from_config(LlamaConfig(**self.sizes), dtype=torch.bfloat16)  # type: ignore[no-untyped-call]
        adapt(network, self.adapted, self.rank, self.alpha)
        return network
