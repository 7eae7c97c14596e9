"""CLIP (Radford et al., 2021, arXiv:2103.00020) with the ViT-B/32, from transformers, on pairs of images and texts."""

from __future__ import annotations

from typing import Any, ClassVar

import torch
from torch import Tensor, nn
from transformers import CLIPConfig, CLIPModel, CLIPTextConfig, CLIPVisionConfig

from torchzoo.case import Mode
from torchzoo.model.tasks import Batch, TransformersModel

VOCABULARY_SIZE = 49_408
#: The last tokens of the vocabulary. The features of a text are those of its end, which has the largest number.
START, END = VOCABULARY_SIZE - 2, VOCABULARY_SIZE - 1


class ClipModel(TransformersModel):
    """Images (B, 3, 224, 224) and texts (B, T), unpadded. Training contrasts all images with all texts of the batch.

    The similarities are scaled by the temperature that CLIP learns, 0.07 at first.
    """

    sample_unit = "pairs"
    text_length: ClassVar[int]

    def build_network(self) -> nn.Module:
        text = CLIPTextConfig(
            vocab_size=VOCABULARY_SIZE,
            hidden_size=512,
            intermediate_size=2048,
            num_hidden_layers=12,
            num_attention_heads=8,
            max_position_embeddings=77,
            bos_token_id=START,
            eos_token_id=END,
        )
        vision = CLIPVisionConfig(
            hidden_size=768,
            intermediate_size=3072,
            num_hidden_layers=12,
            num_attention_heads=12,
            image_size=224,
            patch_size=32,
        )
        return CLIPModel(CLIPConfig(text_config=text, vision_config=vision, projection_dim=512))

    def build_batch(self) -> Batch:
        texts = self.data.tokens(self.batch_size, self.text_length, START)
        texts[:, 0], texts[:, -1] = START, END
        inputs: dict[str, Any] = {
            "input_ids": texts,
            "pixel_values": self.data.images(self.batch_size, 3, 224, 224),
        }
        if self.mode is Mode.TRAIN:
            inputs["return_loss"] = True
        return Batch(inputs)

    def build_optimizer(self) -> torch.optim.Optimizer:
        return torch.optim.AdamW(self.network.parameters(), lr=5e-4, weight_decay=1e-4, eps=1e-6)

    @torch.no_grad()
    def eval_step(self) -> tuple[Tensor, Tensor]:
        """The similarities of images and texts (B, B), scaled, and the text (B,) that is closest to each image."""
        with self.autocast():
            scores: Tensor = self.forward().logits_per_image
        return scores, scores.argmax(dim=1)
