"""Stable Diffusion 3 medium (Esser et al., 2024, arXiv:2403.03206): an MMDiT that follows a rectified flow.

Text and image are two streams with weights of their own, which attend to each other in 24 blocks. Sizes:
`transformer/config.json` of stabilityai/stable-diffusion-3-medium-diffusers (2024). Its card says 2 billion parameters;
its weights and ours have 2,028,328,000. The text is 154 tokens, 77 of CLIP and 77 of T5, as in the paper, and a pooled
embedding. Random numbers stand for what the text encoders and the autoencoder give.

An eval step is the network's part of one step of sampling an image of 1024 x 1024: the update by the scheduler and the
combination of the two predictions are left out. Its batch of 2 is one image with guidance: with the text and without
it. Training is at times whose logits are normal, as in the paper, on images of 512 x 512, which is our choice. AdamW
and the clipping are those of `Denoiser`.

By our count an eval step of 2 takes 16.9 TFLOP and a train step of 4 takes 21.6. By hand, for a block of width D =
1,536, N image tokens and T = 154 text tokens: 12 D^2 weights a token and attention of 4 (N + T)^2 D operations, N =
4,096 or, in training, 1,024. With the embeddings that gives 16.9. Training takes three times the forward pass, without
gradients of the inputs: 21.6. We found no published number.
"""

from typing import Any, ClassVar

from diffusers import SD3Transformer2DModel
from torch import Tensor, nn

from torchzoo.model import Inputs

from .._shared.denoising import FlowMatching


class Model(FlowMatching):
    train_latents = (16, 64, 64)
    eval_latents = (16, 128, 128)
    sizes: ClassVar[dict[str, Any]] = {
        "sample_size": 128,
        "patch_size": 2,
        "in_channels": 16,
        "num_layers": 24,
        "attention_head_dim": 64,
        "num_attention_heads": 24,
        "joint_attention_dim": 4096,
        "caption_projection_dim": 1536,
        "pooled_projection_dim": 2048,
        "pos_embed_max_size": 192,
    }
    small_sizes: ClassVar[dict[str, Any]] = {"num_layers": 2, "num_attention_heads": 2, "caption_projection_dim": 128}
    small_data: ClassVar[dict[str, Any]] = {"train_latents": (16, 8, 8), "eval_latents": (16, 8, 8)}

    def build_network(self) -> nn.Module:
        return SD3Transformer2DModel(**self.sizes)  # type: ignore[no-untyped-call, return-value]

    def build_inputs(self, latents: Tensor, times: Tensor) -> Inputs:
        text, pooled = self.data.normal(self.batch_size, 154, 4096), self.data.normal(self.batch_size, 2048)
        return {
            "hidden_states": latents,
            "encoder_hidden_states": text,
            "pooled_projections": pooled,
            "timestep": 1000 * times,
        }
