"""The Descript Audio Codec at 44.1 kHz (Kumar et al., 2023, arXiv:2306.06546): adversarial training, and coding.

Sizes are those of https://huggingface.co/descript/dac_44khz: 9 codebooks of 1,024 vectors for each 512 samples. The
paper says 76 million parameters. Ours has 76,651,890 in training, of which 31,113 are the factors of weight
normalisation, and 42,519,760 in the discriminators: 119,171,650. As there, convolutions have weight normalisation in
training.

A train step is the authors': the discriminators learn to tell excerpts from what the codec makes of them, then the
codec learns by 15 times the mel loss, the codebook loss, 0.25 times the commitment loss, the adversarial loss and twice
the differences of the discriminators' features. (That backward pass makes gradients of the discriminators that nobody
uses, as theirs.) Excerpts have 0.38 s. Two AdamW (1e-4, betas 0.8 and 0.9) are the paper's; the norms that gradients
are clipped to, 10 and 1,000, are those of the authors' code. A batch has 36 excerpts, half of the paper's, for the
memory. Evaluation encodes and decodes 10 s.

Left out is the random number of codebooks, which the host draws in each step.

A step of evaluation has 1,997.5 GFLOP, by our count and by hand: the encoder 612.5, the decoder 1,384.6 and the
quantizer 0.4. A step of training has more than 17,080 by our count, which does not know Fourier transforms. By hand the
codec has 8,268 without the mel loss: three times 36 x 33 / 861 of the 1,997.5, less the gradient of the audio. The
discriminators have 24.5 for an excerpt, 8,834 in a step: four forward passes, and three backward ones of twice as much.
"""

from typing import Any, ClassVar

import torch
from torch import Tensor, nn
from transformers import DacConfig

from torchzoo.case import Mode
from torchzoo.model.tasks import Batch, SupervisedModel

from .discriminators import Discriminators, adversarial_loss, discriminator_loss, feature_loss
from .loss import MelLoss
from .network import Codec

MEL_WEIGHT, FEATURE_WEIGHT = 15.0, 2.0


class Model(SupervisedModel):
    sample_unit = "excerpts"
    train_samples = 33 * 512
    eval_samples = 861 * 512
    max_grad_norm = 1e3
    max_discriminator_grad_norm = 10.0
    sizes: ClassVar[dict[str, Any]] = {"encoder_hidden_size": 64, "decoder_hidden_size": 1536}
    discriminator_sizes: ClassVar[dict[str, Any]] = {}

    @classmethod
    def small(cls) -> type["Model"]:
        sizes = {"encoder_hidden_size": 8, "decoder_hidden_size": 64}
        discriminator_sizes = {"period_widths": (4, 8, 8, 16, 16), "band_width": 4}
        sizes_of_small = {"sizes": sizes, "discriminator_sizes": discriminator_sizes}
        return type("Small", (cls,), {**sizes_of_small, "eval_samples": cls.train_samples})

    def build_network(self) -> nn.Module:
        config = DacConfig(**self.sizes, sampling_rate=44_100)
        network = Codec(config)
        if self.mode is Mode.TRAIN:
            network.apply_weight_norm()  # type: ignore[no-untyped-call]
            self.mel_loss = MelLoss(config.sampling_rate)
            self.discriminators = Discriminators(**self.discriminator_sizes)
        return network

    def networks(self) -> dict[str, nn.Module]:
        if self.mode is Mode.EVAL:
            return {"network": self.network}
        return {"network": self.network, "discriminators": self.discriminators, "mel_loss": self.mel_loss}

    def build_batch(self) -> Batch:
        samples = self.train_samples if self.mode is Mode.TRAIN else self.eval_samples
        audio = self.data.uniform(self.batch_size, 1, samples, low=-1.0)
        return Batch({"input_values": audio}, audio.squeeze(1))

    def build_optimizer(self) -> torch.optim.Optimizer:
        self.discriminator_optimizer = self.adam_w(self.discriminators)
        return self.adam_w(self.network)

    def adam_w(self, network: nn.Module) -> torch.optim.AdamW:
        return torch.optim.AdamW(network.parameters(), lr=1e-4, betas=(0.8, 0.9))

    def train_step(self) -> Tensor:
        with self.autocast():
            outputs = self.forward()
        self.update_discriminators(outputs.audio_values.detach())
        self.optimizer.zero_grad()
        with self.autocast():
            loss = self.compute_loss(outputs, self.batch.targets)
        self.backward(loss)
        self.step(self.optimizer, max_grad_norm=self.max_grad_norm)
        return loss.detach()

    def update_discriminators(self, fake: Tensor) -> None:
        self.discriminator_optimizer.zero_grad()
        with self.autocast():
            loss = discriminator_loss(self.discriminators(fake), self.discriminators(self.batch.targets))
        self.backward(loss)
        self.step(self.discriminator_optimizer, max_grad_norm=self.max_discriminator_grad_norm)

    def compute_loss(self, outputs: Any, targets: Tensor) -> Tensor:
        audio = outputs.audio_values
        fake, real = self.discriminators(audio), self.discriminators(targets)
        reconstruction = MEL_WEIGHT * self.mel_loss(audio, targets) + outputs.loss.mean()
        return reconstruction + adversarial_loss(fake) + FEATURE_WEIGHT * feature_loss(fake, real)

    @torch.no_grad()
    def eval_step(self) -> tuple[Tensor, Tensor]:
        with self.autocast():
            outputs = self.forward()
        return outputs.audio_codes, outputs.audio_values
