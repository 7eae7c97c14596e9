"""Llama 3.2 1B (Meta, 2024) on sequences packed with documents: FlexAttention attends inside of each document.

The paper of Llama 3 (Grattafiori et al., 2024, arXiv:2407.21783, section 3.2) trains with "an attention mask that
prevents self-attention between different documents within the same sequence". torchtitan (Liang et al., 2024,
arXiv:2410.06511) gives that mask to FlexAttention (Dong et al., 2024, arXiv:2412.05496), as is done here. Sizes
(1,235,814,400 parameters), length and optimizer are those of `llama3_2_1b`. A sequence of 2,048 tokens has five
documents of 96 to 700 tokens, in another order in each sequence: 410 on average, where C4 has 427 (156 billion tokens
in 365 million documents: Dodge et al., 2021, arXiv:2104.08758). The mask is made once, with the data.

Eager and compiled do unequal work, by FlexAttention's nature: outside of `torch.compile` PyTorch computes it unfused,
with the scores of all 2,048 x 2,048 pairs, and a compiler's kernel visits only the blocks of 128 x 128 pairs of which
the mask keeps some. So a speedup compares with unfused, dense attention. The operations that are counted are those of
the kept blocks, in eager too.

By our count, a train step of 4 x 2,048 tokens takes 62.3 TFLOP and an eval step 20.7. By hand, training takes 6
operations for each weight and token: 60.7 TFLOP. The mask keeps 213 of 1,024 blocks; with 4 x 64 operations for each of
their pairs, 32 heads and 16 layers, attention takes 0.457 TFLOP in evaluation, and in training, with its backward pass,
3.5 times that: 1.60. (All pairs would take 2.20 and 7.70.) Evaluation takes 2 operations for each weight and token:
20.2 TFLOP.
"""

from typing import Any, ClassVar

import torch
from torch import Tensor, nn
from transformers import LlamaConfig, LlamaForCausalLM

from .._shared.causal_lm import CausalLM
from .attention import NAME, document_mask


class Model(CausalLM):
    train_length = 2048
    eval_length = 2048
    documents = (96, 700, 288, 552, 412)  # tokens of each, of `train_length`
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
        "use_cache": False,
        "attn_implementation": NAME,
    }
    small_sizes: ClassVar[dict[str, Any]] = {
        "vocab_size": 1000,
        "hidden_size": 256,
        "intermediate_size": 512,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
    }

    def build_network(self) -> nn.Module:
        return PackedLlama(LlamaConfig(**self.sizes), packed(self.documents, self.batch_size, self.length))


class PackedLlama(nn.Module):
    """Tokens (B, T) of packed documents to logits (B, T, V), and to their loss if there are labels (B, T).

    Args:
        documents: the number of each token's document (B, T), on the CPU.
    """

    def __init__(self, config: LlamaConfig, documents: Tensor) -> None:
        super().__init__()
        self.config = config
        self.llama = LlamaForCausalLM(config)
        self.mask = document_mask(documents)

    def forward(self, input_ids: Tensor, labels: Tensor | None = None) -> Any:
        return self.llama(input_ids, labels=labels, mask=self.mask)


def packed(documents: tuple[int, ...], batch_size: int, length: int) -> Tensor:
    """The number of each token's document (B, T), for documents of these relative lengths in an order that rotates."""
    rows = []
    for number in range(batch_size):
        first = number % len(documents)
        ends = torch.tensor((*documents[first:], *documents[:first]), device="cpu").cumsum(0) * length // sum(documents)
        rows.append(torch.bucketize(torch.arange(length, device="cpu"), ends, right=True))
    return torch.stack(rows)
