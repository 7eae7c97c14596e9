"""Task bases of diffusers networks that take the noise out of latents. Shape letters: B batch, ... a latent's shape."""

from __future__ import annotations

import abc
from typing import Any, ClassVar

import torch
from torch import Tensor
from torch.nn import functional as F

from torchzoo.case import Mode
from torchzoo.model import Inputs
from torchzoo.model.tasks import Batch, SupervisedModel

from .sized import SizedModel


class Denoiser(SizedModel, SupervisedModel):
    """One denoising step on latents (B, ...), which autoencoder and text encoder (not part of it) made.

    Noise and times are drawn with the batch, so all steps see the same noisy latents. Training compares the network's
    prediction with its target by the mean squared error. Evaluation returns the prediction. AdamW and the norm that
    gradients are clipped to have the defaults of diffusers' `train_text_to_image_sdxl.py`, where a paper names no
    others.
    """

    sample_unit = "latents"
    train_latents: ClassVar[tuple[int, ...]]
    eval_latents: ClassVar[tuple[int, ...]]
    learning_rate: ClassVar[float] = 1e-4
    weight_decay: ClassVar[float] = 1e-2
    max_grad_norm = 1.0

    @abc.abstractmethod
    def add_noise(self, clean: Tensor, noise: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """The noisy latents (B, ...), their times (B,), and what the network should predict (B, ...)."""

    @abc.abstractmethod
    def build_inputs(self, latents: Tensor, times: Tensor) -> Inputs:
        """The network's inputs: noisy latents and times, and the conditions of the text."""

    def build_batch(self) -> Batch:
        shape = (self.batch_size, *(self.train_latents if self.mode is Mode.TRAIN else self.eval_latents))
        noisy, times, target = self.add_noise(self.data.normal(*shape), self.data.normal(*shape))
        return Batch(self.build_inputs(noisy, times), target if self.mode is Mode.TRAIN else None)

    def compute_loss(self, outputs: Any, targets: Tensor) -> Tensor:
        return F.mse_loss(outputs.sample, targets)

    def build_optimizer(self) -> torch.optim.Optimizer:
        return torch.optim.AdamW(self.network.parameters(), lr=self.learning_rate, weight_decay=self.weight_decay)

    @torch.no_grad()
    def eval_step(self) -> Tensor:
        with self.autocast():
            prediction: Tensor = self.forward().sample
        return prediction


class NoisePrediction(Denoiser):
    """Diffusion in 1,000 steps (Ho et al., 2020, arXiv:2006.11239); the network predicts the noise.

    The roots of the variances grow linearly, as in latent diffusion (Rombach et al., 2022, arXiv:2112.10752). Times are
    uniform whole numbers.
    """

    step_count: ClassVar[int] = 1000
    first_variance: ClassVar[float] = 0.00085
    last_variance: ClassVar[float] = 0.012

    def draw_times(self, clean: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Times (B,), and how much of the latents and of the noise there is at each (B, 1, ...)."""
        ends = self.first_variance**0.5, self.last_variance**0.5
        kept = 1 - torch.linspace(*ends, self.step_count, device=self.device).square()
        times = self.data.integers(0, self.step_count, len(clean))
        signal = kept.cumprod(0)[times].view(-1, *[1] * (clean.ndim - 1))
        return times, signal.sqrt(), (1 - signal).sqrt()

    def add_noise(self, clean: Tensor, noise: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        times, of_clean, of_noise = self.draw_times(clean)
        return of_clean * clean + of_noise * noise, times, noise


class VelocityPrediction(NoisePrediction):
    """The same noise; the network predicts the velocity (Salimans and Ho, 2022, arXiv:2202.00512)."""

    def add_noise(self, clean: Tensor, noise: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        times, of_clean, of_noise = self.draw_times(clean)
        return of_clean * clean + of_noise * noise, times, of_clean * noise - of_noise * clean


class FlowMatching(Denoiser):
    """Rectified flow (Liu et al., 2022, arXiv:2209.03003): the network predicts the velocity from data to noise.

    Times are between 0, clean, and 1, noise. Their logits are standard normal (Esser et al., 2024, arXiv:2403.03206).
    """

    def add_noise(self, clean: Tensor, noise: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        times = self.data.normal(len(clean)).sigmoid()
        part = times.view(-1, *[1] * (clean.ndim - 1))  # (B, 1, ...)
        return (1 - part) * clean + part * noise, times, noise - clean
