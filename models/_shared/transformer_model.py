"""What the models share whose network is `Transformer` of `transformer.py`: loss, optimizer, decoding."""

from __future__ import annotations

import abc
from functools import partial
from typing import Any, ClassVar

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.utils._pytree import tree_map

from torchzoo.case import Mode
from torchzoo.model.tasks import Batch, SupervisedModel

from .beam_search import Hypotheses, beam_search
from .transformer import Config, DecoderStep, KeysValues, Transformer

PADDING, START, END, FIRST_WORD = range(4)


class WarmUp:
    """The learning rate of the paper's section 5.3: it rises with the number of updates, then falls with its root.

    It is a tensor on the device, so that a compiled step reads it without being compiled again.
    """

    def __init__(self, width: int, updates: int, device: torch.device) -> None:
        self.factor, self.slope = width**-0.5, updates**-1.5
        self.update = torch.zeros((), device=device)
        self.learning_rate = torch.zeros((), device=device)

    def advance(self) -> None:
        self.update += 1
        self.learning_rate.copy_(self.factor * torch.minimum(self.update**-0.5, self.slope * self.update))


class TransformerModel(SupervisedModel):
    """A Transformer with the paper's training: cross entropy with label smoothing 0.1, Adam, learning rate warmed up.

    Evaluation is teacher-forced; or, where `beam_size` is not 0, it decodes `decoding_length` tokens per sequence by
    beam search, with a `beam_size` of 1 greedily.
    """

    network: Transformer
    config: ClassVar[Config]
    shortest_target: ClassVar[int]
    longest_target: ClassVar[int]
    beam_size: ClassVar[int] = 0
    decoding_length: ClassVar[int]
    warm_up_updates: ClassVar[int] = 4000

    @abc.abstractmethod
    def build_source(self) -> tuple[Tensor, Tensor]:
        """The encoder's input and its lengths (B,)."""

    @property
    def decodes(self) -> bool:
        return self.mode is Mode.EVAL and self.beam_size > 0

    def build(self) -> None:
        super().build()
        self.decoder_step = DecoderStep(self.network.decoder)

    def build_batch(self) -> Batch:
        source = self.build_source()
        if self.decodes:
            return Batch(source)
        sentences, _ = self.random_sentences(self.shortest_target, self.longest_target, self.config.vocabulary_size)
        given = F.pad(sentences[:, :-1], (1, 0), value=START)
        return Batch((*source, given), sentences)

    def random_sentences(self, shortest: int, longest: int, vocabulary_size: int) -> tuple[Tensor, Tensor]:
        """Words, an end token and padding (B, longest), and the lengths (B,), the end token counted."""
        words = self.data.integers(FIRST_WORD, vocabulary_size, self.batch_size, longest)
        lengths = self.data.integers(shortest, longest + 1, self.batch_size)
        after_end = torch.arange(1, longest + 1) - lengths.unsqueeze(1)
        return words.masked_fill(after_end == 0, END).masked_fill(after_end > 0, PADDING), lengths

    def networks(self) -> dict[str, nn.Module]:
        if self.decodes:
            return {"encoder": self.network.encoder, "memory": self.network.memory, "decoder_step": self.decoder_step}
        return {"network": self.network}

    def compute_loss(self, outputs: Tensor, targets: Tensor) -> Tensor:
        logits = outputs.flatten(0, 1)
        return F.cross_entropy(logits, targets.flatten(), ignore_index=PADDING, label_smoothing=0.1)

    def build_optimizer(self) -> torch.optim.Optimizer:
        self.warm_up = WarmUp(self.config.width, self.warm_up_updates, self.device)
        rate = self.warm_up.learning_rate  # a tensor on the device, which only the fused Adam takes everywhere
        return torch.optim.Adam(self.network.parameters(), lr=rate, betas=(0.9, 0.98), eps=1e-9, fused=True)

    def train_step(self) -> Tensor:
        self.warm_up.advance()
        return super().train_step()

    @torch.no_grad()
    def eval_step(self) -> Any:
        with self.autocast():
            return self.decode() if self.decodes else self.forward()

    def decode(self) -> Hypotheses:
        """The best `beam_size` transcriptions of each source."""
        encoded, hidden = self.network.encoder(*self.batch.inputs)
        beam_size = self.beam_size
        hidden, memory = tree_map(partial(repeat_rows, count=beam_size), (hidden, self.network.memory(encoded)))
        caches = tree_map(lambda looked_up: new_cache(looked_up, self.decoding_length), memory)

        def step(tokens: Tensor, position: Tensor, caches: list[KeysValues]) -> tuple[Tensor, list[KeysValues]]:
            logits, caches = self.decoder_step(tokens, position, memory, hidden, caches)
            return logits, caches

        start = torch.full((len(encoded),), START, device=self.device)
        return beam_search(step, caches, start, beam_size=beam_size, length=self.decoding_length, end_token=END)


def repeat_rows(tensor: Tensor, count: int) -> Tensor:
    """(B, ...) to (B count, ...), each row `count` times."""
    return tensor.unsqueeze(1).expand(-1, count, *tensor.shape[1:]).flatten(0, 1)


def new_cache(looked_up: Tensor, length: int) -> Tensor:
    """Zeros (B, H, length, D) like keys or values (B, H, S, D)."""
    batch, heads, _, width = looked_up.shape
    return looked_up.new_zeros(batch, heads, length, width)
