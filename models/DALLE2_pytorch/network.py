"""The networks of unCLIP (Ramesh et al., 2022, arXiv:2204.06125), from the parts that diffusers has for them.

Shape letters: B batch, T caption tokens, E size of CLIP's embeddings, S side in pixels.
"""

from dataclasses import dataclass
from typing import Any

import torch
from diffusers import PriorTransformer, UNet2DConditionModel, UNet2DModel
from torch import Tensor, nn
from transformers import (
    CLIPTextConfig,
    CLIPTextModelWithProjection,
    CLIPVisionConfig,
    CLIPVisionModelWithProjection,
)

from torchzoo.model.attention import attend_alike


@dataclass(frozen=True, kw_only=True)
class Config:
    embedding_size: int = 512  # of CLIP ViT-B/32
    caption_length: int = 77
    prior_layers: int = 6
    prior_heads: int = 8
    head_size: int = 64
    decoder_size: int = 64  # pixels, of images and of the maps below
    decoder_widths: tuple[int, ...] = (128, 256, 384, 512)
    decoder_depth: int = 3  # residual blocks per width
    context_size: int = 512  # of what the decoder attends to
    image_tokens: int = 4
    upsampler_size: int = 256
    upsampler_widths: tuple[int, ...] = (96, 192, 288, 384)
    upsampler_depth: int = 3


class TextEncoder(nn.Module):
    """Captions (B, T) to CLIP's text embeddings (B, E) and the states of their tokens (B, T, E)."""

    def __init__(self, config: Config) -> None:
        super().__init__()
        clip = CLIPTextConfig(projection_dim=config.embedding_size, max_position_embeddings=config.caption_length)
        self.clip = CLIPTextModelWithProjection(clip).requires_grad_(requires_grad=False)
        attend_alike(self.clip)

    def forward(self, captions: Tensor) -> tuple[Tensor, Tensor]:
        output = self.clip(captions)
        return unit_variance(output.text_embeds), output.last_hidden_state


class ImageEncoder(nn.Module):
    """Images (B, 3, 224, 224) to CLIP's image embeddings (B, E)."""

    def __init__(self, config: Config) -> None:
        super().__init__()
        clip = CLIPVisionConfig(projection_dim=config.embedding_size)
        self.clip = CLIPVisionModelWithProjection(clip).requires_grad_(requires_grad=False)

    def forward(self, images: Tensor) -> Tensor:
        return unit_variance(self.clip(images).image_embeds)


def unit_variance(embeddings: Tensor) -> Tensor:
    """Embeddings (B, E) of length sqrt(E), as diffusion wants its data."""
    scaled: Tensor = nn.functional.normalize(embeddings, dim=-1) * embeddings.shape[-1] ** 0.5
    return scaled


class Prior(nn.Module):
    """A causal transformer that predicts image embeddings (B, E) from noisy ones, their times (B,) and a caption."""

    def __init__(self, config: Config) -> None:
        super().__init__()
        self.transformer: Any = PriorTransformer(  # type: ignore[no-untyped-call]
            num_attention_heads=config.prior_heads,
            attention_head_dim=config.head_size,
            num_layers=config.prior_layers,
            embedding_dim=config.embedding_size,
            num_embeddings=config.caption_length,
        )
        # Statistics that diffusers keeps beside the network; embeddings here have unit variance already.
        del self.transformer.clip_mean, self.transformer.clip_std  # type: ignore[attr-defined]

    def forward(self, noisy: Tensor, time: Tensor, text: Tensor, states: Tensor) -> Tensor:
        every_token = torch.ones_like(states[..., 0])  # with a mask the transformer is causal
        output = self.transformer(
            noisy, time, proj_embedding=text, encoder_hidden_states=states, attention_mask=every_token
        )
        embeddings: Tensor = output.predicted_image_embedding
        return embeddings


class Decoder(nn.Module):
    """A U-Net that predicts the noise in images (B, 3, 64, 64), and its variance: (B, 6, 64, 64).

    The CLIP embeddings are added to that of the time, and the image's becomes four tokens that are attended to beside
    those of the caption.
    """

    def __init__(self, config: Config) -> None:
        super().__init__()
        widths, levels = config.decoder_widths, len(config.decoder_widths) - 1
        self.unet: Any = UNet2DConditionModel(  # type: ignore[no-untyped-call]
            sample_size=config.decoder_size,
            in_channels=3,
            out_channels=6,
            down_block_types=("ResnetDownsampleBlock2D", *["SimpleCrossAttnDownBlock2D"] * levels),
            mid_block_type="UNetMidBlock2DSimpleCrossAttn",
            up_block_types=(*["SimpleCrossAttnUpBlock2D"] * levels, "ResnetUpsampleBlock2D"),
            block_out_channels=widths,
            layers_per_block=config.decoder_depth,
            cross_attention_dim=config.context_size,
            attention_head_dim=config.head_size,
            resnet_time_scale_shift="scale_shift",
            class_embed_type="identity",
        )
        time_size = 4 * widths[0]
        self.image_to_time = nn.Linear(config.embedding_size, time_size)
        self.text_to_time = nn.Linear(config.embedding_size, time_size)
        self.image_to_tokens = nn.Linear(config.embedding_size, config.image_tokens * config.context_size)
        self.states_to_tokens = nn.Sequential(
            nn.Linear(config.embedding_size, config.context_size), nn.LayerNorm(config.context_size)
        )
        self.image_tokens = config.image_tokens

    def forward(self, noisy: Tensor, time: Tensor, image: Tensor, text: Tensor, states: Tensor) -> Tensor:
        image_tokens = self.image_to_tokens(image).unflatten(-1, (self.image_tokens, -1))  # (B, 4, context)
        output = self.unet(
            noisy,
            time,
            encoder_hidden_states=torch.cat([image_tokens, self.states_to_tokens(states)], dim=1),
            class_labels=self.image_to_time(image) + self.text_to_time(text),
        )
        prediction: Tensor = output.sample
        return prediction


class Upsampler(nn.Module):
    """A convolutional U-Net that predicts the noise in images (B, 3, S, S), given them blurred at the same size."""

    def __init__(self, config: Config) -> None:
        super().__init__()
        levels = len(config.upsampler_widths)
        self.unet: Any = UNet2DModel(  # type: ignore[no-untyped-call]
            sample_size=config.upsampler_size,
            in_channels=6,
            out_channels=3,
            down_block_types=("ResnetDownsampleBlock2D",) * levels,
            up_block_types=("ResnetUpsampleBlock2D",) * levels,
            block_out_channels=config.upsampler_widths,
            layers_per_block=config.upsampler_depth,
            resnet_time_scale_shift="scale_shift",
            add_attention=False,
        )

    def forward(self, noisy: Tensor, time: Tensor, blurred: Tensor) -> Tensor:
        noise: Tensor = self.unet(torch.cat([noisy, blurred], dim=1), time).sample
        return noise
