"""ESM-2 650M (Lin et al., 2022, doi:10.1126/science.ade2574) filling in masked amino acids of proteins.

Sizes: the configuration of https://huggingface.co/facebook/esm2_t33_650M_UR50D; 651 million parameters, 650 million in
the paper. Training is the paper's: 15% of the amino acids are to be found, of which 80% are masked (the others are left
as they are here), Adam at 4e-4 with betas of 0.9 and 0.98 and weight decay of 0.01. Sequences of 512; the paper's have
up to 1,024.
"""

from typing import Any, ClassVar

import torch
from torch import nn
from transformers import EsmConfig, EsmForMaskedLM

from torchzoo.case import Mode
from torchzoo.tasks import Batch, LanguageModel

FIRST_AMINO_ACID, AMINO_ACIDS, MASK, IGNORED = 4, 20, 32, -100


class Model(LanguageModel):
    sizes: ClassVar[dict[str, Any]] = {"hidden_size": 1280, "num_hidden_layers": 33, "intermediate_size": 5120}

    @classmethod
    def small(cls) -> type["Model"]:
        sizes = {"hidden_size": 80, "num_hidden_layers": 2, "intermediate_size": 64}
        return type("Small", (cls,), {"sizes": sizes, "train_length": 32, "eval_length": 32})

    def build_network(self) -> nn.Module:
        config = EsmConfig(
            **self.sizes,
            vocab_size=33,
            pad_token_id=1,
            mask_token_id=MASK,
            token_dropout=True,
            num_attention_heads=20,
            position_embedding_type="rotary",
            layer_norm_eps=1e-5,
            hidden_dropout_prob=0.0,
            attention_probs_dropout_prob=0.0,
            max_position_embeddings=1026,
        )
        return EsmForMaskedLM(config)

    def build_batch(self) -> Batch:
        length = self.train_length if self.mode is Mode.TRAIN else self.eval_length
        tokens = FIRST_AMINO_ACID + self.data.tokens(self.batch_size, length, AMINO_ACIDS)
        chance = self.data.uniform(self.batch_size, length)
        inputs = {"input_ids": tokens.masked_fill(chance < 0.15 * 0.8, MASK)}
        if self.mode is Mode.TRAIN:
            inputs["labels"] = tokens.masked_fill(chance >= 0.15, IGNORED)
        return Batch(inputs)

    def build_optimizer(self) -> torch.optim.Optimizer:
        return torch.optim.AdamW(self.network.parameters(), lr=4e-4, betas=(0.9, 0.98), weight_decay=0.01)
