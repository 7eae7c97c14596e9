"""Chinese BERT base (Devlin et al., 2018, arXiv:1810.04805) finding answers in texts, as in CMRC 2018.

The task (Cui et al., 2018, arXiv:1810.07366): a text and a question in, the first and the last character of the answer
out. It is fastNLP's example of `BertForQuestionAnswering` (https://github.com/fastnlp/fastNLP, version 0.6.0) with the
lengths and settings of TorchBench's `models/fastNLP_Bert`: 457 characters of text, 16 of question, [CLS] and two [SEP];
dropout of 0.1 inside BERT and 0.5 behind it, 1% of the characters unknown; logits outside the text masked in the loss;
AdamW, and gradients clipped to a norm of 1. There, the gradients of ten batches make one update; here, each batch's do.
The conversion from characters to tokens, on the host at each step there, is left out. So is BERT's pooler, which
fastNLP's model of 102,269,186 parameters computes and does not use.
"""

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from torchzoo.case import Mode
from torchzoo.model.tasks import Batch, SupervisedModel

from .network import AnswerPointer, Config


class Model(SupervisedModel):
    sample_unit = "sequences"
    config = Config()
    text_length = 457
    question_length = 16
    max_grad_norm = 1.0

    def build_network(self) -> nn.Module:
        return AnswerPointer(self.config)

    def build_batch(self) -> Batch:
        length = 1 + self.text_length + 1 + self.question_length + 1
        separators = (1 + self.text_length, length - 1)
        tokens = self.data.integers(self.config.first_character, self.config.vocabulary_size, self.batch_size, length)
        tokens[:, 0] = self.config.classification
        tokens[:, separators] = self.config.separator
        positions = torch.arange(length).expand(self.batch_size, -1)
        inputs = {
            "input_ids": tokens,
            "token_type_ids": (positions > separators[0]).long(),  # 0 in the text, 1 in the question
            "attention_mask": torch.ones_like(tokens),
        }
        if self.mode is Mode.EVAL:
            return Batch(inputs)
        targets = {
            "is_text": (positions < self.text_length)[:, : length - 2],
            "start": self.data.integers(0, self.text_length // 2, self.batch_size),
            "end": self.data.integers(self.text_length // 2, self.text_length, self.batch_size),
        }
        return Batch(inputs, targets)

    def compute_loss(self, outputs: Tensor, targets: dict[str, Tensor]) -> Tensor:
        start, end = outputs.masked_fill(~targets["is_text"].unsqueeze(2), float("-inf")).unbind(2)
        return (F.cross_entropy(start, targets["start"]) + F.cross_entropy(end, targets["end"])) / 2

    def build_optimizer(self) -> torch.optim.Optimizer:
        return torch.optim.AdamW(self.network.parameters(), lr=5e-5)
