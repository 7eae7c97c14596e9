"""DCGAN (Radford, Metz and Chintala, 2015, arXiv:1511.06434) making 64 x 64 images.

A train step is one iteration of the algorithm: one discriminator update, on a batch of real and a batch of generated
images that are normalised separately, then one generator update through the updated discriminator, with the
non-saturating loss. As in common implementations, both updates see the same generated images, and the backward pass of
the second makes gradients of the discriminator that nobody uses. The discriminator gives logits and the loss contains
the sigmoid: the paper's function in a form that autocast can run. An eval step samples the generator; it has no
discriminator.
"""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

import torchzoo.model
from torchzoo.case import Mode

from .._shared.optimizers import adam
from .network import Discriminator, DiscriminatorConfig, Generator, GeneratorConfig


class Model(torchzoo.model.Model):
    sample_unit = "images"
    learning_rate = 2e-4
    betas = (0.5, 0.999)

    def build(self) -> None:
        config = GeneratorConfig()
        self.generator = Generator(config)
        self.batch = {"noise": self.data.normal(self.batch_size, config.latent_size)}
        if self.mode is Mode.TRAIN:
            self.discriminator = Discriminator(DiscriminatorConfig())
            self.batch["images"] = self.data.uniform(self.batch_size, config.channels, 64, 64, low=-1.0)  # as tanh's
            self.generator_optimizer = adam(self.generator, lr=self.learning_rate, betas=self.betas)
            self.discriminator_optimizer = adam(self.discriminator, lr=self.learning_rate, betas=self.betas)

    def networks(self) -> dict[str, nn.Module]:
        if self.mode is Mode.EVAL:
            return {"generator": self.generator}
        return {"generator": self.generator, "discriminator": self.discriminator}

    @property
    def example_inputs(self) -> tuple[Any, ...]:
        return (self.batch["noise"],)

    def train_step(self) -> Tensor:
        with self.autocast():
            fakes = self.generator(self.batch["noise"])
        self.update_discriminator(fakes.detach())
        return self.update_generator(fakes)

    def update_discriminator(self, fakes: Tensor) -> None:
        self.discriminator_optimizer.zero_grad()
        with self.autocast():
            real_loss = adversarial_loss(self.discriminator(self.batch["images"]), torch.ones_like)
        self.backward(real_loss)
        with self.autocast():
            fake_loss = adversarial_loss(self.discriminator(fakes), torch.zeros_like)
        self.backward(fake_loss)
        self.step(self.discriminator_optimizer)

    def update_generator(self, fakes: Tensor) -> Tensor:
        self.generator_optimizer.zero_grad()
        with self.autocast():
            loss = adversarial_loss(self.discriminator(fakes), torch.ones_like)
        self.backward(loss)
        self.step(self.generator_optimizer)
        return loss.detach()

    @torch.no_grad()
    def eval_step(self) -> Tensor:
        with self.autocast():
            images: Tensor = self.generator(self.batch["noise"])
        return images


def adversarial_loss(logits: Tensor, label: Callable[[Tensor], Tensor]) -> Tensor:
    """Binary cross entropy of logits (B,) against one label for the whole batch, made by `label`."""
    return F.binary_cross_entropy_with_logits(logits, label(logits))
