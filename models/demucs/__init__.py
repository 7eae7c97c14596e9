"""Demucs (Défossez et al., 2019, arXiv:1911.13254), first version, separating drums, bass, voice and the rest.

Stereo at 44.1 kHz; a training sample is the four sources of a song, 426,888 samples (9.7 s) of each. A train step cuts
them at random to 8.7 s, each source on its own, changes signs and channels, mixes sources of different songs, and fits
the network's L1 loss by one Adam step. An eval step separates mixtures of 426,888 samples, and computes no loss.
"""

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from torchzoo.case import Mode
from torchzoo.model.tasks import Batch, SupervisedModel

from .augmentation import augment
from .network import Config, Demucs, centre


class Model(SupervisedModel):
    sample_unit = "mixtures"
    config = Config()
    length = 426_888
    longest_shift = 44_100

    def build_network(self) -> nn.Module:
        return Demucs(self.config)

    def build_batch(self) -> Batch:
        c = self.config
        if self.mode is Mode.EVAL:
            return Batch((self.data.uniform(self.batch_size, c.channels, self.length, low=-1.0),))
        sources = self.data.uniform(self.batch_size, c.sources, c.channels, self.length, low=-1.0)
        return Batch((sources.sum(dim=1),), sources)  # the mixtures as given; the step makes its own

    def compute_loss(self, outputs: Tensor, targets: Tensor) -> Tensor:
        return F.l1_loss(outputs, centre(targets, outputs.shape[-1]))

    def build_optimizer(self) -> torch.optim.Optimizer:
        return torch.optim.Adam(self.network.parameters(), lr=3e-4)

    def train_step(self) -> Tensor:
        self.optimizer.zero_grad()
        sources = augment(self.batch.targets, self.longest_shift)
        with self.autocast():
            loss = self.compute_loss(self.network(sources.sum(dim=1)), sources)
        self.backward(loss)
        self.step(self.optimizer)
        return loss.detach()
