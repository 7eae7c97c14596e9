"""StarGAN (Choi et al., 2018, arXiv:1711.09020) changing five attributes of 128 x 128 faces.

A train step is one whole cycle of the published schedule: five discriminator updates (WGAN-GP and classification of
the attributes), each on its own batch of images and with freshly drawn target attributes, and one generator update on
the last of these batches (adversarial, classification and reconstruction loss, of weight 10). Target attributes are
those of the batch in another order, drawn on the device. The loss returned is the generator's, whose backward pass
makes gradients of the discriminator that nobody uses, as published. An eval step translates one batch.
Instance normalisation uses the image's own statistics in both modes, as the authors sample.
"""

from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

import torchzoo.model
from torchzoo.case import Mode

from .._shared.optimizers import adam
from .loss import Critic, classification_loss
from .network import Discriminator, DiscriminatorConfig, Generator, GeneratorConfig


class Model(torchzoo.model.Model):
    sample_unit = "images"
    image_size = 128
    discriminator_updates = 5
    learning_rate = 1e-4
    betas = (0.5, 0.999)
    reconstruction_weight = 10.0

    def build(self) -> None:
        config = GeneratorConfig()
        self.generator = Generator(config)
        count = self.discriminator_updates if self.mode is Mode.TRAIN else 1
        size = (self.image_size, self.image_size)
        self.batch = [
            (
                self.data.uniform(self.batch_size, 3, *size, low=-1.0),
                self.data.integers(0, 2, self.batch_size, config.domains).to(torch.get_default_dtype()),
            )
            for _ in range(count)
        ]
        if self.mode is Mode.TRAIN:
            discriminator = Discriminator(DiscriminatorConfig(image_size=self.image_size, domains=config.domains))
            self.discriminator = Critic(discriminator)
            self.generator_optimizer = adam(self.generator, lr=self.learning_rate, betas=self.betas)
            self.discriminator_optimizer = adam(self.discriminator, lr=self.learning_rate, betas=self.betas)

    def networks(self) -> dict[str, nn.Module]:
        if self.mode is Mode.EVAL:
            return {"generator": self.generator}
        return {"generator": self.generator, "discriminator": self.discriminator}

    @property
    def example_inputs(self) -> tuple[Any, ...]:
        images, domains = self.batch[0]
        return (images, domains)

    @property
    def samples_per_step(self) -> int:
        return len(self.batch) * self.batch_size

    def train_step(self) -> Tensor:
        for images, domains in self.batch:
            target = shuffled(domains)
            self.update_discriminator(images, domains, target)
        return self.update_generator(images, domains, target)

    def update_discriminator(self, images: Tensor, domains: Tensor, target: Tensor) -> None:
        self.discriminator_optimizer.zero_grad()
        with self.autocast():
            with torch.no_grad():
                fakes = self.generator(images, target)
            mix = torch.rand_like(images[:, :1, :1, :1])
            loss = self.discriminator(images, domains, fakes, mix)
        self.backward(loss)
        self.step(self.discriminator_optimizer)

    def update_generator(self, images: Tensor, domains: Tensor, target: Tensor) -> Tensor:
        self.generator_optimizer.zero_grad()
        with self.autocast():
            fakes = self.generator(images, target)
            score, logits = self.discriminator(fakes)
            reconstruction = F.l1_loss(self.generator(fakes, domains), images)
            loss = classification_loss(logits, target) - score.mean() + self.reconstruction_weight * reconstruction
        self.backward(loss)
        self.step(self.generator_optimizer)
        return loss.detach()

    @torch.no_grad()
    def eval_step(self) -> Tensor:
        images, domains = self.batch[0]
        with self.autocast():
            translated: Tensor = self.generator(images, domains)
        return translated


def shuffled(domains: Tensor) -> Tensor:
    """The rows of `domains` (B, D) in a random order."""
    order = torch.rand(len(domains), device=domains.device).argsort()
    return domains[order]
