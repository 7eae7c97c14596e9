"""nanoGPT's small GPT (https://github.com/karpathy/nanoGPT, 2022; Radford et al., 2019) on Shakespeare's characters.

It has 10.65 million parameters as nanoGPT counts them, without the 98,304 of its position embeddings.
"""

from torchzoo.networks.gpt import Config
from torchzoo.networks.gpt_model import GPTModel


class Model(GPTModel):
    config = Config(vocabulary_size=65, length=256, layers=6, heads=6, width=384, dropout=0.2)
    learning_rate = 1e-3
    betas = (0.9, 0.99)
