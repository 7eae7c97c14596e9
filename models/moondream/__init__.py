"""The language model of moondream1 (Korrapati, 2024, https://github.com/vikhyat/moondream): Phi-1.5, on 512 tokens.

moondream1 answers questions about images: SigLIP looks, Phi-1.5 (Li et al., 2023, arXiv:2309.05463) writes. No library
has the two together. TorchBench's `moondream` (https://github.com/pytorch/benchmark at 0e83c44) is `PhiForCausalLM`,
too, without image: it computes the logits of 512 tokens at once. So is this one.

Sizes: Phi-1.5's, which are transformers' defaults (24 layers of 32 heads, width 2,048). It is published as 1.3 billion
parameters; ours has 1,418,270,720, of which 209,766,400 are the two tables of 51,200 words (at the input and in the
head). With only one of them it has 1,313,413,120, so the published number seems to count one.

A step takes 1.396 TFLOP by our count. By hand: 2 operations for each of 512 tokens and 1,312,817,152 weights
(1,207,959,552 in the layers, 104,857,600 in the head) make 1.344. Attention adds 4 x 512 x 512 x 2,048 in each layer:
0.052.
"""

from typing import Any, ClassVar

from torch import nn
from transformers import PhiConfig, PhiForCausalLM

from torchzoo.tasks import LanguageModel


class Model(LanguageModel):
    sizes: ClassVar[dict[str, Any]] = {
        "vocab_size": 51_200,
        "hidden_size": 2048,
        "intermediate_size": 8192,
        "num_hidden_layers": 24,
        "num_attention_heads": 32,
        "max_position_embeddings": 2048,
        "use_cache": False,
    }
    small_sizes: ClassVar[dict[str, Any]] = {
        "vocab_size": 1000,
        "hidden_size": 64,
        "intermediate_size": 128,
        "num_hidden_layers": 2,
        "num_attention_heads": 2,
    }

    def build_network(self) -> nn.Module:
        return PhiForCausalLM(PhiConfig(**self.sizes))
