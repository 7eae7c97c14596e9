"""LLaMA (Touvron et al., 2023, arXiv:2302.13971) in a small size, as the first code for inference had it.

Sizes: TorchBench's `llama` (https://github.com/pytorch/benchmark at 0e83c44): 8 layers of 8 heads, width 512, 32,000
words. That makes 60,039,680 parameters; the smallest published LLaMA has 32 layers, a width of 4,096 and 6.7 billion. A
step takes 57.4 GFLOP by our count. By hand: 2 operations for each of 1,024 tokens and 27.3 million weights of the
layers make 55.8. The head (16.4 million weights, for the last token of each prompt) adds 1.0, attention (4 x 32 x 33 x
512 for each prompt and layer) 0.6. Like that code (https://github.com/facebookresearch/llama, first version), this one
rotates queries and keys as complex numbers, keeps keys and values in a cache of 1,024 positions that is written and
read by slices, and multiplies scores and values out without a fused kernel.

A step reads 32 prompts of 32 tokens, which begin at position 1, and computes the logits that follow the last one.
TorchBench leaves out the causal mask; here it is applied. Its cache always has room for 64 sequences.
"""

import torch
from torch import nn

from torchzoo.model.tasks import Batch, NetworkModel

from .._shared.llama import Config
from .network import SlicedLlama


class Model(NetworkModel):
    sample_unit = "sequences"
    config = Config(layers=8, heads=8, width=512, length=1024, last_only=True)
    prompt_length = 32
    start = 1

    def build_network(self) -> nn.Module:
        return SlicedLlama(self.config, self.batch_size)

    def build_batch(self) -> Batch:
        tokens = self.data.tokens(self.batch_size, self.prompt_length, self.config.vocabulary_size)
        return Batch((tokens.to(torch.int32), self.start))
