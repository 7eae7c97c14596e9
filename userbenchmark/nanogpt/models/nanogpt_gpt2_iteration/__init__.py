"""A whole iteration of nanoGPT's train_gpt2 (https://github.com/karpathy/nanoGPT, 2022; Radford et al., 2019).

The gradients of 40 micro-batches of 12 sequences of 1,024 tokens, 491,520 tokens, are accumulated before each update.
Everything else equals the zoo's `nanogpt_gpt2`, whose step has one micro-batch.
"""

from torchzoo_models._shared.gpt import Config
from torchzoo_models._shared.gpt_model import GPTModel


class Model(GPTModel):  # type: ignore[misc]  # mypy knows torchzoo_models only as models
    config = Config(vocabulary_size=50304, length=1024, layers=12, heads=12, width=768, dropout=0.0)
    learning_rate = 6e-4
    betas = (0.9, 0.95)
    micro_batch_count = 40
