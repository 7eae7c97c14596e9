"""What nanoGPT's models share: batches, the optimizer, and an iteration of one or several micro-batches."""

from __future__ import annotations

from typing import Any, ClassVar, NamedTuple

import torch
from torch import Tensor, nn

import torchzoo.model
from torchzoo.case import Mode

from .gpt import GPT, Config


class MicroBatch(NamedTuple):
    tokens: Tensor  # (B, T)
    targets: Tensor  # (B, T), the tokens after these


class GPTModel(torchzoo.model.Model):
    """A GPT trained by AdamW with gradients clipped to a norm of 1.

    A train step is one iteration: the gradients of `micro_batch_count` batches of `batch_size` sequences are
    accumulated, then there is one update. An eval step computes the logits of one batch.
    """

    sample_unit = "sequences"
    config: ClassVar[Config]
    learning_rate: ClassVar[float]
    betas: ClassVar[tuple[float, float]]
    weight_decay: ClassVar[float] = 0.1  # of weights; not of biases and normalisations
    micro_batch_count: ClassVar[int] = 1

    def build(self) -> None:
        self.network = GPT(self.config)
        count = self.micro_batch_count if self.mode is Mode.TRAIN else 1
        self.batch = [self.build_micro_batch() for _ in range(count)]
        if self.mode is Mode.TRAIN:
            self.optimizer = self.build_optimizer()

    def build_micro_batch(self) -> MicroBatch:
        text = self.data.tokens(self.batch_size, self.config.length + 1, self.config.vocabulary_size)
        return MicroBatch(text[:, :-1].contiguous(), text[:, 1:].contiguous())

    def build_optimizer(self) -> torch.optim.Optimizer:
        parameters = list(self.network.parameters())
        groups = [
            {"params": [p for p in parameters if p.ndim >= 2], "weight_decay": self.weight_decay},
            {"params": [p for p in parameters if p.ndim < 2], "weight_decay": 0.0},
        ]
        fused = self.device.type == "cuda"
        return torch.optim.AdamW(groups, lr=self.learning_rate, betas=self.betas, fused=fused)

    def networks(self) -> dict[str, nn.Module]:
        return {"network": self.network}

    @property
    def example_inputs(self) -> tuple[Any, ...]:
        first: MicroBatch = self.batch[0]
        return tuple(first) if self.mode is Mode.TRAIN else (first.tokens,)

    @property
    def samples_per_step(self) -> int:
        return len(self.batch) * self.batch_size

    def train_step(self) -> Tensor:
        self.optimizer.zero_grad()
        losses = []
        for tokens, targets in self.batch:
            with self.autocast():
                _, loss = self.network(tokens, targets)
            loss = loss / len(self.batch)
            self.backward(loss)
            losses.append(loss.detach())
        self.step(self.optimizer, max_grad_norm=1.0)
        return torch.stack(losses).sum()

    @torch.no_grad()
    def eval_step(self) -> Tensor:
        with self.autocast():
            logits: Tensor
            logits, _ = self.network(self.batch[0].tokens)
        return logits
