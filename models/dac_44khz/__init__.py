"""The Descript Audio Codec at 44.1 kHz (Kumar et al., 2023, arXiv:2306.06546): training to reconstruct, and coding.

Sizes are those of https://huggingface.co/descript/dac_44khz: 9 codebooks of 1,024 vectors for each 512 samples. The
paper says 76 million parameters. Ours has 76,651,890 in training, of which 31,113 are the factors of weight
normalisation. Excerpts of 0.38 s, AdamW (1e-4, betas 0.8 and 0.9) and the
losses are the paper's: 15 times the mel loss, the codebook loss, and 0.25 times the commitment loss. As there,
convolutions have weight normalisation in training. A batch has 36 excerpts, half of the paper's: those of 72 take
67 GiB. Evaluation encodes and decodes 10 s.

Left out is what makes it a GAN: the discriminators and their losses. So is the random number of codebooks, which the
host draws in each step.

A step of evaluation has 1,997.5 GFLOP, by our count and by hand: the encoder 612.5, the decoder 1,384.6 and the
quantizer 0.4. A step of training has more than 8,272.3 by our count, which does not know Fourier transforms. By hand it
has 8,268 without the mel loss: three times 36 x 33 / 861 of the 1,997.5, less the gradient of the audio.
"""

from typing import Any, ClassVar

import torch
from torch import Tensor, nn
from transformers import DacConfig

from torchzoo.case import Mode
from torchzoo.tasks import Batch, SupervisedModel

from .loss import MelLoss
from .network import Codec

MEL_WEIGHT = 15.0


class Model(SupervisedModel):
    sample_unit = "excerpts"
    train_samples = 33 * 512
    eval_samples = 861 * 512
    sizes: ClassVar[dict[str, Any]] = {"encoder_hidden_size": 64, "decoder_hidden_size": 1536}

    @classmethod
    def small(cls) -> type["Model"]:
        sizes = {"encoder_hidden_size": 8, "decoder_hidden_size": 64}
        return type("Small", (cls,), {"sizes": sizes, "eval_samples": cls.train_samples})

    def build_network(self) -> nn.Module:
        config = DacConfig(**self.sizes, sampling_rate=44_100)
        self.mel_loss = MelLoss(config.sampling_rate)
        network = Codec(config)
        if self.mode is Mode.TRAIN:
            network.apply_weight_norm()  # type: ignore[no-untyped-call]
        return network

    def networks(self) -> dict[str, nn.Module]:
        return {"network": self.network} | ({"mel_loss": self.mel_loss} if self.mode is Mode.TRAIN else {})

    def build_batch(self) -> Batch:
        samples = self.train_samples if self.mode is Mode.TRAIN else self.eval_samples
        audio = self.data.uniform(self.batch_size, 1, samples, low=-1.0)
        return Batch({"input_values": audio}, audio.squeeze(1))

    def compute_loss(self, outputs: Any, targets: Tensor) -> Tensor:
        return MEL_WEIGHT * self.mel_loss(outputs.audio_values, targets) + outputs.loss.mean()

    def build_optimizer(self) -> torch.optim.Optimizer:
        return torch.optim.AdamW(self.network.parameters(), lr=1e-4, betas=(0.8, 0.9))

    @torch.no_grad()
    def eval_step(self) -> tuple[Tensor, Tensor]:
        with self.autocast():
            outputs = self.forward()
        return outputs.audio_codes, outputs.audio_values
