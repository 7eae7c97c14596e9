"""The speaker encoder of Mozilla TTS (Wan et al., 2017, arXiv:1710.10467), with the angular prototypical loss.

Utterances of 50 frames and 40 mel channels become embeddings of 256 on the unit sphere; the loss (Chung et al., 2020,
arXiv:2003.11982) wants each speaker's last utterance nearest to the mean of that speaker's others. A train batch is of
`batch_size` utterances, two from each speaker, of whom there must be two or more. A train step is one update of encoder
and loss by RAdam at the repository's learning rate, gradients clipped to a norm of 3. An eval step makes embeddings.
"""

from itertools import chain
from typing import Any

import torch
from torch import Tensor, nn

import torchzoo.model
from torchzoo.case import Mode

from .network import AngularPrototypicalLoss, Config, SpeakerEncoder


class Model(torchzoo.model.Model):
    sample_unit = "utterances"
    config = Config()
    frames = 50
    utterances_per_speaker = 2

    def build(self) -> None:
        self.encoder = SpeakerEncoder(self.config)
        channels = self.config.mel_channels
        mean_spectra = self.data.normal(self.batch_size, 1, channels)  # different, so that embeddings are too
        self.batch = {"mels": mean_spectra + self.data.normal(self.batch_size, self.frames, channels)}
        if self.mode is Mode.TRAIN:
            speakers, rest = divmod(self.batch_size, self.utterances_per_speaker)
            if rest or speakers < 2:
                raise ValueError(f"training needs pairs of utterances of two or more speakers, not {self.batch_size}")
            self.criterion = AngularPrototypicalLoss()
            parameters = chain(self.encoder.parameters(), self.criterion.parameters())
            self.optimizer = torch.optim.RAdam(parameters, lr=1e-4)

    def networks(self) -> dict[str, nn.Module]:
        if self.mode is Mode.EVAL:
            return {"encoder": self.encoder}
        return {"encoder": self.encoder, "criterion": self.criterion}

    @property
    def example_inputs(self) -> tuple[Any, ...]:
        return (self.batch["mels"],)

    def train_step(self) -> Tensor:
        self.optimizer.zero_grad()
        with self.autocast():
            embeddings = self.encoder(self.batch["mels"])
            loss: Tensor = self.criterion(embeddings.unflatten(0, (-1, self.utterances_per_speaker)))
        self.backward(loss)
        self.step(self.optimizer, max_grad_norm=3.0)
        return loss.detach()

    @torch.no_grad()
    def eval_step(self) -> Tensor:
        with self.autocast():
            embeddings: Tensor = self.encoder(self.batch["mels"])
        return embeddings
