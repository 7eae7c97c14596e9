"""Mamba-2 1.3B (Dao and Gu, 2024, arXiv:2405.21060): trained on next tokens, and generating with a state of fixed size.

Sizes: the configuration of the published weights, https://huggingface.co/state-spaces/mamba2-1.3b (48 layers of width
2,048; 50,277 tokens, rounded up to a multiple of 16), and the defaults of the authors'
https://github.com/state-spaces/mamba: heads of 64, a state of 128, one group, chunks of 256 tokens. These make
1,343,757,312 parameters; the paper names 1.3 billion.

By our count, a train step of 2 x 1,024 tokens takes 23.2 TFLOP, a prefill 2.89 TFLOP, and a token in decoding 2.74
GFLOP. By hand, training takes 8 operations for each token and the layers' 1.24 billion weights, as the forward pass is
computed twice: 20.31 TFLOP. The last product of a layer is not computed again: 1.65 less. The head takes 6 for each
token and weight: 1.27. The scan takes four times 2 c c (n + p) + 4 c n p for each head (p = 64, state n = 128) and
chunk (c = 256 tokens): 3.31. A prefill takes 2.48 TFLOP for the weights and 0.41 for the scan, decoding 2.68 GFLOP and
0.05.

Optimizer: the paper's (appendix D.2): AdamW with betas of 0.9 and 0.95, a weight decay of 0.1, a learning rate of five
times GPT-3's (for this size 2e-4), gradients clipped to a norm of 1. Sequences have 1,024 tokens; the paper's have
2,048.

transformers computes the chunked scan by PyTorch's operators. transformers 5.23 multiplies matrices there (the count
above is its). transformers 5.17 multiplies elements, by broadcasting them over (chunk, chunk, heads, state), and sums
the products: its tensors have 8.6 GB for each sequence, and the backward pass has two at a time. That sets the batch,
and times of the two versions can't be compared. If mamba-ssm and causal-conv1d are installed, both versions may call
their kernels instead. The operators keep (heads, chunk, chunk) matrices of each layer for the backward pass. Therefore,
training keeps only the inputs of layers and computes the rest again. The authors' kernels compute again what is inside
of the scan, too.

A state has the same size after any number of tokens: the lengths of prompt and cache are those of the other models, and
a decode step's work does not depend on the cache's. The first one begins with the state after four tokens, and each
other one with the state that the one before has left.
"""

from typing import Any, ClassVar

from torch import nn
from transformers import Mamba2Config, Mamba2ForCausalLM

from .._shared.causal_lm import CausalLM


class Model(CausalLM):
    train_length = 1024
    checkpoints_layers = True
    prompt_length = 1000
    cache_length = 2048
    learning_rate = 1e-3
    epsilon = 1e-8
    sizes: ClassVar[dict[str, Any]] = {
        "vocab_size": 50_288,
        "hidden_size": 2048,
        "num_hidden_layers": 48,
        "num_heads": 64,
        "head_dim": 64,
        "state_size": 128,
        "n_groups": 1,
        "expand": 2,
        "conv_kernel": 4,
        "chunk_size": 256,
        "layer_norm_epsilon": 1e-5,
        "initializer_range": 0.02,
        "residual_in_fp32": True,
        "tie_word_embeddings": True,
        "pad_token_id": 0,
        "bos_token_id": 0,
        "eos_token_id": 0,
    }
    small_sizes: ClassVar[dict[str, Any]] = {
        "vocab_size": 1024,
        "hidden_size": 128,
        "num_hidden_layers": 2,
        "num_heads": 8,
        "head_dim": 32,
        "state_size": 16,
        "chunk_size": 8,
    }

    def build_network(self) -> nn.Module:
        return Mamba2ForCausalLM(Mamba2Config(**self.sizes))
