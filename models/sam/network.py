"""What SAM does before and after its network: normalise and pad photos, enlarge and cut off masks."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from transformers import SamModel


class Segmentation(NamedTuple):
    masks: Tensor  # (B, 3, H, W), true and false, in the photo's size
    scores: Tensor  # (B, 3), how well each mask is thought to fit
    logits: Tensor  # (B, 3, S / 4, S / 4)


class Segmenter(nn.Module):
    """Images (B, 3, h, w) of 0 to 255, the longer side of size S, and a point (B, 1, 1, 2) on each to its masks.

    Args:
        network: segments squares.
        size: S.
        original_size: H and W of the photos before they were resized.
    """

    mean: Tensor
    deviation: Tensor

    def __init__(self, network: SamModel, size: int, original_size: tuple[int, int]) -> None:
        super().__init__()
        self.network = network
        self.size = size
        self.original_size = original_size
        self.register_buffer("mean", torch.tensor([123.675, 116.28, 103.53]).view(3, 1, 1), persistent=False)
        self.register_buffer("deviation", torch.tensor([58.395, 57.12, 57.375]).view(3, 1, 1), persistent=False)

    def forward(self, images: Tensor, points: Tensor) -> Segmentation:
        size = self.size
        height, width = images.shape[2:]
        pixels = F.pad((images - self.mean) / self.deviation, (0, size - width, 0, size - height))
        is_object = torch.ones(points.shape[:3], dtype=torch.int32, device=points.device)
        outputs = self.network(pixel_values=pixels, input_points=points, input_labels=is_object, multimask_output=True)
        logits = outputs.pred_masks.squeeze(1)
        padded = F.interpolate(logits, (size, size), mode="bilinear")
        masks = F.interpolate(padded[..., :height, :width], self.original_size, mode="bilinear")
        return Segmentation(masks > 0, outputs.iou_scores.squeeze(1), logits)
