"""XLM-RoBERTa large (Conneau et al., 2019, arXiv:1911.02116) classifying sentence pairs, in FAMBench's size.

Each of the 96 sequences of 64 tokens is a pair of sentences, as in XNLI: entailment, neutral or contradiction.
"""

import torch
from torch import nn
from transformers import XLMRobertaConfig, XLMRobertaForSequenceClassification

from torchzoo.case import Mode
from torchzoo.model.tasks import Batch, LanguageModel


class Model(LanguageModel):
    length = 64
    vocabulary_size = 250002
    num_classes = 3

    def build_network(self) -> nn.Module:
        config = XLMRobertaConfig(  # type: ignore[call-arg]
            vocab_size=self.vocabulary_size,
            hidden_size=1024,
            num_hidden_layers=24,
            num_attention_heads=16,
            intermediate_size=4096,
            max_position_embeddings=514,  # position numbers start at 2
            type_vocab_size=1,
            layer_norm_eps=1e-5,
            num_labels=self.num_classes,
            use_cache=False,
        )
        return XLMRobertaForSequenceClassification(config)

    def build_batch(self) -> Batch:
        inputs = {"input_ids": self.data.tokens(self.batch_size, self.length, self.vocabulary_size)}
        if self.mode is Mode.TRAIN:
            inputs["labels"] = self.data.labels(self.batch_size, self.num_classes)
        return Batch(inputs)

    def build_optimizer(self) -> torch.optim.Optimizer:
        return torch.optim.SGD(self.network.parameters(), lr=0.01)
