"""ESM-2 650M (Lin et al., 2022, doi:10.1126/science.ade2574) filling in masked amino acids of proteins.

Sizes: the configuration of https://huggingface.co/facebook/esm2_t33_650M_UR50D; 651,043,254 parameters, 650 million in
the paper. By our count, an eval step of 32 x 512 tokens takes 22.7 TFLOP, a train step of 8 x 512 tokens 17.0. By hand,
evaluation takes 2 operations for each token and each of the layers' 648.8 million weights: 21.26. Attention adds 4 x
512 x 512 x 1,280 for each sequence and layer: 1.42. The head adds 0.06. Training takes three times as much for a
sequence.

Training is the paper's: 15% of the amino acids are to be found, and 80% of these are masked. Adam at 4e-4 with betas of
0.9 and 0.98 and weight decay of 0.01. Two things are simpler here. The paper replaces half of the other 20% by random
amino acids; here all of them are left as they are. Our sequences are random, so a replaced amino acid would look like
any other, and the work is the same. Sequences have 512 tokens, the usual length of this suite's language models; the
paper's have up to 1,024. Attention takes 6% of the work here; with 1,024 tokens it would take 12%.
"""

from typing import Any, ClassVar

import torch
from torch import nn
from transformers import EsmConfig, EsmForMaskedLM

from torchzoo.case import Mode
from torchzoo.model.tasks import Batch, LanguageModel

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
