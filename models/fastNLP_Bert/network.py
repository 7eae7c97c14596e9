"""BERT (Devlin et al., 2018, arXiv:1810.04805) that points at an answer, with the dropouts that fastNLP adds.

Shape letters: B texts, T tokens with [CLS] in front and [SEP] at the end, C width.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor, nn
from transformers import BertConfig, BertModel


@dataclass(frozen=True, kw_only=True)
class Config:
    vocabulary_size: int = 21128
    width: int = 768
    dropout: float = 0.5  # of what BERT makes of each token
    word_dropout: float = 0.01  # the share of tokens that become [UNK]
    masked: float = -1e4  # added to the scores of what is not attended to
    padding: int = 0  # numbers of special tokens
    unknown: int = 100
    classification: int = 101  # [CLS]
    separator: int = 102  # [SEP]
    first_character: int = 670


class AnswerPointer(nn.Module):
    """Tokens (B, T), their segments (B, T) and what to attend to (B, T) to logits (B, T - 2, 2) of start and end."""

    def __init__(self, config: Config) -> None:
        super().__init__()
        self.config = config
        bert = BertConfig(
            vocab_size=config.vocabulary_size,
            hidden_size=config.width,
            num_hidden_layers=12,
            num_attention_heads=12,
            intermediate_size=3072,
            max_position_embeddings=512,
            attn_implementation="eager",  # type: ignore[call-arg]  # fastNLP's: an operator for each part of it
        )
        self.bert = BertModel(bert, add_pooling_layer=False)
        self.dropout = nn.Dropout(config.dropout)
        self.output = nn.Linear(config.width, 2)

    def forward(self, input_ids: Tensor, token_type_ids: Tensor, attention_mask: Tensor) -> Tensor:
        if self.training:
            input_ids = self.drop_words(input_ids)
        hidden = 1.0 - attention_mask[:, None, None].to(self.output.weight.dtype)
        outputs = self.bert(input_ids, token_type_ids=token_type_ids, attention_mask=hidden * self.config.masked)
        states = outputs.last_hidden_state  # (B, T, C)
        logits: Tensor = self.output(self.dropout(states[:, 1:-1]))
        return logits

    def drop_words(self, tokens: Tensor) -> Tensor:
        """Tokens (B, T), some of them unknown; special ones stay."""
        c = self.config
        drop = torch.bernoulli(torch.full_like(tokens, c.word_dropout, dtype=torch.float32)) == 1
        for special in (c.padding, c.separator, c.classification):
            drop = drop & (tokens != special)
        return tokens.masked_fill(drop, c.unknown)
