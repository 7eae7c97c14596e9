"""Chinese BERT base (Devlin et al., 2018, arXiv:1810.04805) finding answers in texts, as in CMRC 2018.

The task (Cui et al., 2018, arXiv:1810.07366): a question and a text in, the first and the last token of the answer out.
BERT's pooler, which fastNLP's model of 102,269,186 parameters holds, has no part in that and is left out.
"""

import torch
from torch import Tensor, nn
from transformers import BertConfig, BertForQuestionAnswering

from torchzoo.case import Mode
from torchzoo.tasks import Batch, LanguageModel


class Model(LanguageModel):
    length = 474
    question_length = 20
    vocabulary_size = 21128

    def build_network(self) -> nn.Module:
        config = BertConfig(
            vocab_size=self.vocabulary_size,
            hidden_size=768,
            num_hidden_layers=12,
            num_attention_heads=12,
            intermediate_size=3072,
            max_position_embeddings=512,
            use_cache=False,
        )
        return BertForQuestionAnswering(config)

    def build_batch(self) -> Batch:
        positions = torch.arange(self.length).expand(self.batch_size, -1)
        inputs = {
            "input_ids": self.data.tokens(self.batch_size, self.length, self.vocabulary_size),
            "token_type_ids": (positions >= self.question_length).long(),  # 0 in the question, 1 in the text
        }
        if self.mode is Mode.TRAIN:
            inputs["start_positions"] = self.data.integers(self.question_length, self.length // 2, self.batch_size)
            inputs["end_positions"] = self.data.integers(self.length // 2, self.length, self.batch_size)
        return Batch(inputs)

    def build_optimizer(self) -> torch.optim.Optimizer:
        return torch.optim.AdamW(self.network.parameters(), lr=5e-5)

    @torch.no_grad()
    def eval_step(self) -> Tensor:
        with self.autocast():
            outputs = self.forward()
        return torch.stack([outputs.start_logits, outputs.end_logits], dim=-1)  # (B, T, 2)
