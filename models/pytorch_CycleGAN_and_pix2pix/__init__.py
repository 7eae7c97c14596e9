"""CycleGAN (Zhu et al., 2017, arXiv:1703.10593) translating 256 x 256 images, horses to zebras, between two domains.

A train step is one iteration of the algorithm: both generators are updated together (least-squares adversarial loss,
cycle consistency of weight 10, identity loss of half that weight), then both discriminators, which see generated images
through pools of 50. Discriminators are frozen while the generators learn, as published. The pools lie on the device,
full as they are after the first 50 steps, with one pool per image of a larger batch. An eval step translates with the
first generator. (Pix2pix shares only the folder's name: its authors publish both together.)
"""

import torch
from torch import Tensor, nn
from torch.nn import functional as F

import torchzoo.model
from torchzoo.case import Mode

from .._shared.image_translation import PatchDiscriminator, least_squares_loss
from .._shared.optimizers import adam
from .network import Config, Generator, initialise
from .pool import exchange


class Model(torchzoo.model.Model):
    """Letters a and b are the two domains; `generator_ab` makes images of b from those of a."""

    sample_unit = "images"
    image_size = 256
    pool_size = 50
    learning_rate = 2e-4
    betas = (0.5, 0.999)
    cycle_weight = 10.0
    identity_weight = 5.0

    def build(self) -> None:
        self.generator_ab = Generator(Config()).apply(initialise)
        self.batch = {"a": self.build_images()}
        if self.mode is Mode.EVAL:
            return
        self.batch["b"] = self.build_images()
        self.batch["pool_a"] = self.build_images(self.pool_size)
        self.batch["pool_b"] = self.build_images(self.pool_size)
        self.generator_ba = Generator(Config()).apply(initialise)
        self.discriminator_a = PatchDiscriminator().apply(initialise)
        self.discriminator_b = PatchDiscriminator().apply(initialise)
        generators, discriminators = (
            (self.generator_ab, self.generator_ba),
            (self.discriminator_a, self.discriminator_b),
        )
        self.generator_optimizer = adam(*generators, lr=self.learning_rate, betas=self.betas)
        self.discriminator_optimizer = adam(*discriminators, lr=self.learning_rate, betas=self.betas)

    def build_images(self, *counts: int) -> Tensor:
        """(B, *counts, 3, S, S) in [-1, 1), as tanh's."""
        return self.data.uniform(self.batch_size, *counts, 3, self.image_size, self.image_size, low=-1.0)

    def networks(self) -> dict[str, nn.Module]:
        if self.mode is Mode.EVAL:
            return {"generator_ab": self.generator_ab}
        return {
            "generator_ab": self.generator_ab,
            "generator_ba": self.generator_ba,
            "discriminator_a": self.discriminator_a,
            "discriminator_b": self.discriminator_b,
        }

    @property
    def example_inputs(self) -> tuple[Tensor]:
        return (self.batch["a"],)

    @property
    def samples_per_step(self) -> int:
        domains = 1 if self.mode is Mode.EVAL else 2
        return domains * self.batch_size

    def train_step(self) -> Tensor:
        self.freeze_discriminators(frozen=True)
        loss, fake_a, fake_b = self.update_generators()
        self.freeze_discriminators(frozen=False)
        self.update_discriminators(fake_a, fake_b)
        return loss

    def freeze_discriminators(self, *, frozen: bool) -> None:
        for discriminator in (self.discriminator_a, self.discriminator_b):
            discriminator.requires_grad_(requires_grad=not frozen)

    def update_generators(self) -> tuple[Tensor, Tensor, Tensor]:
        """The loss, and the generated images of a and b."""
        a, b = self.batch["a"], self.batch["b"]
        self.generator_optimizer.zero_grad()
        with self.autocast():
            fake_b, fake_a = self.generator_ab(a), self.generator_ba(b)
            adversarial = least_squares_loss(self.discriminator_b(fake_b), 1.0)
            adversarial = adversarial + least_squares_loss(self.discriminator_a(fake_a), 1.0)
            cycle = F.l1_loss(self.generator_ba(fake_b), a) + F.l1_loss(self.generator_ab(fake_a), b)
            identity = F.l1_loss(self.generator_ab(b), b) + F.l1_loss(self.generator_ba(a), a)
            loss = adversarial + self.cycle_weight * cycle + self.identity_weight * identity
        self.backward(loss)
        self.step(self.generator_optimizer)
        return loss.detach(), fake_a.detach(), fake_b.detach()

    def update_discriminators(self, fake_a: Tensor, fake_b: Tensor) -> None:
        self.discriminator_optimizer.zero_grad()
        for discriminator, real, fake, pool in (
            (self.discriminator_a, self.batch["a"], fake_a, self.batch["pool_a"]),
            (self.discriminator_b, self.batch["b"], fake_b, self.batch["pool_b"]),
        ):
            with self.autocast():
                real_loss = least_squares_loss(discriminator(real), 1.0)
                fake_loss = least_squares_loss(discriminator(exchange(pool, fake)), 0.0)
                loss = 0.5 * (real_loss + fake_loss)
            self.backward(loss)
        self.step(self.discriminator_optimizer)

    @torch.no_grad()
    def eval_step(self) -> Tensor:
        with self.autocast():
            images: Tensor = self.generator_ab(self.batch["a"])
        return images
