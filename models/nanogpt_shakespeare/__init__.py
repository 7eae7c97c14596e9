"""nanoGPT's small GPT (https://github.com/karpathy/nanoGPT, 2022; Radford et al., 2019) on Shakespeare's characters.

It has 10,745,088 parameters: 10.65 million as nanoGPT counts them, without the 98,304 of its position embeddings.

By our count, an eval step of 64 x 256 tokens takes 387 GFLOP, a train step 1.16 TFLOP. By hand, as nanoGPT's notebook
`transformer_sizing.ipynb` counts: 2 operations for each token and each of 10,641,792 weights make 348.7. Attention adds
4 x 256 x 256 x 384 for each sequence and layer: 38.7. Training takes three times as much.
"""

from .._shared.gpt import Config
from .._shared.gpt_model import GPTModel


class Model(GPTModel):
    config = Config(vocabulary_size=65, length=256, layers=6, heads=6, width=384, dropout=0.2)
    learning_rate = 1e-3
    betas = (0.9, 0.99)
