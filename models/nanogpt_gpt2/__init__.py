"""GPT-2 124M (Radford et al., 2019) as nanoGPT trains it from scratch (https://github.com/karpathy/nanoGPT, 2022).

Its vocabulary of 50,257 is rounded up to a multiple of 64, there are no biases and no dropout. An iteration of nanoGPT
accumulates the gradients of 40 micro-batches (491,520 tokens): a subclass with a `micro_batch_count` of 40 runs that;
the step measured here has one.
"""

from torchzoo.networks.gpt import Config
from torchzoo.networks.gpt_model import GPTModel


class Model(GPTModel):
    config = Config(vocabulary_size=50304, length=1024, layers=12, heads=12, width=768, dropout=0.0)
    learning_rate = 6e-4
    betas = (0.9, 0.95)
    micro_batch_count = 1
