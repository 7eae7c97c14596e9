"""FLUX.1 [dev] (Black Forest Labs, 2024, https://github.com/black-forest-labs/flux): a step of making an image.

Sizes: `transformer/config.json` of black-forest-labs/FLUX.1-dev. Text and image are two streams in 19 blocks, then one
in 38. What is not given here are diffusers' defaults, which are these sizes. The card says 12 billion parameters; the
published weights and ours have 11,901,408,320. It is a rectified flow, with no paper of its own.

The step has 4,096 image tokens, each 2 x 2 latents of 16 channels of an image of 1024 x 1024, and 512 tokens of text.
The strength of the guidance is an input, so a batch of 1 is a whole image. The update by the scheduler is left out.
Random numbers stand for the encoded text.

By our count a step takes 74.4 TFLOP. By hand, with width D = 3,072 and S = 4,608 tokens: 57 blocks of 12 D^2 weights a
token take 59.5, their attention of 4 S^2 D operations 14.9; modulations and embeddings add 0.04: 74.4. We found no
published number.
"""

from typing import Any, ClassVar

import torch
from diffusers import FluxTransformer2DModel
from torch import Tensor, nn

from torchzoo.model import Inputs

from .._shared.denoising import FlowMatching


class Positioned(nn.Module):
    """The transformer with the positions of its tokens: text is at 0, image tokens at their row and column."""

    def __init__(self, transformer: Any, side: int, text_length: int) -> None:
        super().__init__()
        self.transformer = transformer
        row, column = torch.arange(side).repeat_interleave(side), torch.arange(side).repeat(side)
        self.register_buffer("image", torch.stack([0 * row, row, column], dim=-1), persistent=False)  # (T, 3)
        self.register_buffer("text", torch.zeros(text_length, 3, dtype=torch.long), persistent=False)

    def forward(self, latents: Tensor, text: Tensor, pooled: Tensor, times: Tensor, guidance: Tensor) -> Any:
        return self.transformer(latents, text, pooled, times, self.image, self.text, guidance)


class Model(FlowMatching):
    train_latents = eval_latents = (64 * 64, 64)
    text_length = 512
    sizes: ClassVar[dict[str, Any]] = {"num_layers": 19, "num_single_layers": 38, "num_attention_heads": 24}
    small_sizes: ClassVar[dict[str, Any]] = {"num_layers": 2, "num_single_layers": 2, "num_attention_heads": 1}
    small_data: ClassVar[dict[str, Any]] = {"eval_latents": (4 * 4, 64), "text_length": 8}

    def build_network(self) -> nn.Module:
        transformer = FluxTransformer2DModel(guidance_embeds=True, **self.sizes)  # type: ignore[no-untyped-call]
        return Positioned(transformer, int(self.eval_latents[0] ** 0.5), self.text_length)

    def build_inputs(self, latents: Tensor, times: Tensor) -> Inputs:
        size = self.batch_size
        text, pooled = self.data.normal(size, self.text_length, 4096), self.data.normal(size, 768)
        return latents, text, pooled, times, torch.full((size,), 3.5, device=self.device)
