"""The U-Net of SDXL (Podell et al., 2023, arXiv:2307.01952) taking noise out of the latents of 1024 x 1024 images.

Sizes: `unet/config.json` of stabilityai/stable-diffusion-xl-base-1.0 (2023). Table 1 of the paper says 2.6 billion
parameters; ours has 2,567,463,684. Conditions are 77 tokens of two text encoders, a pooled embedding of the text, and
six numbers: the image's original size, the corner of the crop and the size to be made. Random numbers stand for what
text encoders and autoencoder give.

An eval step is the network's part of one step of sampling: the update by the scheduler and the combination of the two
predictions are left out. Its batch of 2 is one image with guidance: the latents with and without the text. The paper
trains with offset noise of 0.05 at this size; ours is plain noise. AdamW and the clipping are those of `Denoiser`.

By our count an eval step of 2 takes 13.5 TFLOP and a train step of 1 takes 20.2. By hand, from the published
configuration: all convolutions of the residual blocks, 18 C^2 weights a position in a transformer layer of width C, the
keys and values of the text, and attention; 6.76 for one latent, 13.5 for two. Training takes three times that, without
gradients of the inputs: 20.2.
"""

from typing import Any, ClassVar

from diffusers import UNet2DConditionModel
from torch import Tensor, nn

from torchzoo.model import Inputs

from .._shared.denoising import NoisePrediction


class Model(NoisePrediction):
    train_latents = eval_latents = (4, 128, 128)
    sizes: ClassVar[dict[str, Any]] = {
        "sample_size": 128,
        "down_block_types": ("DownBlock2D", "CrossAttnDownBlock2D", "CrossAttnDownBlock2D"),
        "up_block_types": ("CrossAttnUpBlock2D", "CrossAttnUpBlock2D", "UpBlock2D"),
        "block_out_channels": (320, 640, 1280),
        "transformer_layers_per_block": (1, 2, 10),  # the first is not used
        "attention_head_dim": (5, 10, 20),  # numbers of heads
        "cross_attention_dim": 2048,
        "use_linear_projection": True,
        "addition_embed_type": "text_time",
        "addition_time_embed_dim": 256,
        "projection_class_embeddings_input_dim": 1280 + 6 * 256,
    }
    small_sizes: ClassVar[dict[str, Any]] = {
        "block_out_channels": (32, 64, 64),
        "transformer_layers_per_block": (1, 1, 2),
    }
    small_data: ClassVar[dict[str, Any]] = {"train_latents": (4, 16, 16), "eval_latents": (4, 16, 16)}

    def build_network(self) -> nn.Module:
        return UNet2DConditionModel(**self.sizes)  # type: ignore[no-untyped-call, return-value]

    def build_inputs(self, latents: Tensor, times: Tensor) -> Inputs:
        text = self.data.normal(self.batch_size, 77, 2048)
        pooled = self.data.normal(self.batch_size, 1280)
        image_sizes = latents.new_tensor([1024, 1024, 0, 0, 1024, 1024]).repeat(self.batch_size, 1)
        conditions = {"text_embeds": pooled, "time_ids": image_sizes}
        return {"sample": latents, "timestep": times, "encoder_hidden_states": text, "added_cond_kwargs": conditions}
