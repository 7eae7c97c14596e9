"""GPT-2 124M (Radford et al., 2019) as nanoGPT trains it from scratch (https://github.com/karpathy/nanoGPT, 2022).

Its vocabulary of 50,257 is rounded up to a multiple of 64, there are no biases and no dropout. An iteration of nanoGPT
accumulates the gradients of 40 micro-batches (491,520 tokens): a subclass with a `micro_batch_count` of 40 runs that;
the step measured here has one.

nanoGPT's notebook `transformer_sizing.ipynb` counts 124,337,664 parameters for 50,257 words; ours has 124,373,760, for
the 47 words more. The notebook counts 291.65 GFLOP for a sequence of 1,024 tokens, and 874.94 in training (the masked
half of attention counts). By our count, 12 sequences take 3.501 TFLOP, and 10.502 in training: 291.72 and 875.17 GFLOP
for each.
"""

from .._shared.gpt import Config
from .._shared.gpt_model import GPTModel


class Model(GPTModel):
    config = Config(vocabulary_size=50304, length=1024, layers=12, heads=12, width=768, dropout=0.0)
    learning_rate = 6e-4
    betas = (0.9, 0.95)
    micro_batch_count = 1
