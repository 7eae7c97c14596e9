"""The U-Net of Stable Diffusion 2 (Rombach et al., 2022, arXiv:2112.10752), from diffusers: one denoising step.

Sizes: https://huggingface.co/stabilityai/stable-diffusion-2, 865,910,724 parameters (published: 865 million). Latents
are 96 x 96 (an image of 768 x 768), texts have 77 tokens. Random numbers stand for what text encoder and autoencoder
give.

An eval step is the network's part of one step of sampling, without the update by the scheduler and the combination of
the two predictions. Its batch of 2 is one image with guidance: with the text and without it. TorchBench's model of this
name (https://github.com/pytorch/benchmark at 0e83c44) takes 50 such steps to draw an image. (To compilers it hands a
module with other inputs, which are not taken over: one of 128 x 128 latents, with a text of one token.)

TorchBench does not train it. Here a train step is that of the model card: the velocity at a random one of 1,000 times
is to be predicted; AdamW at 1e-4. The clipping is that of `Denoiser`.

By our count, an evaluation of 2 latents takes 4.30 TFLOP and a train step of 1 takes 6.44. A count by hand from the
published configuration gives the same: all convolutions of the residual blocks, 18 C^2 weights a position in a
transformer layer of width C, the keys and values of the text, and attention; three times that in training, without
gradients of the inputs.
"""

from typing import Any, ClassVar

from diffusers import UNet2DConditionModel
from torch import Tensor, nn

from torchzoo.model import Inputs

from .._shared.denoising import VelocityPrediction


class Model(VelocityPrediction):
    train_latents = eval_latents = (4, 96, 96)
    sizes: ClassVar[dict[str, Any]] = {
        "sample_size": 96,
        "block_out_channels": (320, 640, 1280, 1280),
        "attention_head_dim": (5, 10, 20, 20),  # numbers of heads
        "cross_attention_dim": 1024,
        "use_linear_projection": True,
    }
    small_sizes: ClassVar[dict[str, Any]] = {
        "block_out_channels": (32, 64, 64, 64),
        "attention_head_dim": (1, 2, 2, 2),
        "cross_attention_dim": 32,
    }
    small_data: ClassVar[dict[str, Any]] = {"train_latents": (4, 16, 16), "eval_latents": (4, 16, 16)}

    def build_network(self) -> nn.Module:
        return UNet2DConditionModel(**self.sizes)  # type: ignore[no-untyped-call, return-value]

    def build_inputs(self, latents: Tensor, times: Tensor) -> Inputs:
        text = self.data.normal(self.batch_size, 77, self.sizes["cross_attention_dim"])
        return {"sample": latents, "timestep": times, "encoder_hidden_states": text}
