"""BigBird base (Zaheer et al., 2020, arXiv:2007.14062) filling in masked tokens, with block-sparse attention.

A block of 64 queries attends to the first and the last block, to three blocks around it and, in training, to three
random ones; in evaluation the library has the first block stand in for those, so that the work is the same.
"""

from torch import nn
from transformers import BigBirdConfig, BigBirdForMaskedLM

from torchzoo.model.tasks import LanguageModel


class Model(LanguageModel):
    train_length = 1024
    eval_length = 4096

    def build_network(self) -> nn.Module:
        config = BigBirdConfig(
            vocab_size=50358,
            hidden_size=768,
            num_hidden_layers=12,
            num_attention_heads=12,
            intermediate_size=3072,
            attention_type="block_sparse",
            block_size=64,
            num_random_blocks=3,
            max_position_embeddings=4096,
            use_cache=False,
        )
        return BigBirdForMaskedLM(config)
