"""DINOv3 ViT-B/16 (Siméoni et al., 2025, arXiv:2508.10104) with a linear classifier, on images of 256 x 256.

Sizes: `dinov3_vitb16` of https://github.com/facebookresearch/dinov3 (2025). It has 4 register tokens, rotary positions
and no bias of the keys. Its model card says 86 M parameters, timm's card 85.7 M and 23.6 GMAC for an image; without the
classifier (1,537,000) ours has 85,660,416, and 87,197,416 with it. The published weights were distilled from a frozen
teacher of 6.7 billion parameters. A train step here is simpler: it fine-tunes the whole network on labels. The
classifier reads the class token and the mean of the patches' tokens, as in the paper's linear evaluation. As published,
training rescales the positions by a random factor in each step, and AdamW has a weight decay of 0.04 and a learning
rate of 2e-4 for 1,024 images, scaled with the square root of the batch: 5e-5 for 64.

By our count an eval step of 256 images takes 12.07 TFLOP and a train step of 64 images 9.03. timm's 23.6 GMAC give
12.08 for 256 images. Three times that for 64 images are 9.06; the gradient of the images, 0.02, is not computed.
"""

import torch
from torch import Tensor, nn
from transformers import DINOv3ViTConfig, DINOv3ViTModel

from torchzoo.model.tasks import ImageClassifier


class Classifier(nn.Module):
    def __init__(self, backbone: DINOv3ViTModel, num_classes: int) -> None:
        super().__init__()
        self.backbone = backbone
        self.head = nn.Linear(2 * backbone.config.hidden_size, num_classes)

    def forward(self, images: Tensor) -> Tensor:
        """Images (B, 3, S, S) to logits (B, K)."""
        tokens = self.backbone(pixel_values=images).last_hidden_state  # (B, 1 + registers + patches, D)
        patches = tokens[:, 1 + self.backbone.config.num_register_tokens :]
        logits: Tensor = self.head(torch.cat([tokens[:, 0], patches.mean(1)], dim=-1))
        return logits


class Model(ImageClassifier):
    image_size = 256

    def build_network(self) -> nn.Module:
        config = DINOv3ViTConfig(
            hidden_size=768, intermediate_size=3072, num_attention_heads=12, num_register_tokens=4, image_size=256
        )
        return Classifier(DINOv3ViTModel(config), self.num_classes)

    def build_optimizer(self) -> torch.optim.Optimizer:
        return torch.optim.AdamW(self.network.parameters(), lr=5e-5, weight_decay=0.04)
