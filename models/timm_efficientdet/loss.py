"""EfficientDet's loss (Tan, Pang and Le, 2019, arXiv:1911.09070) on labelled anchors, and boxes to learn from.

Shape letters: B batch, M boxes per image. All boxes are y1, x1, y2, x2, in pixels.
"""

from __future__ import annotations

from typing import Any

import torch
from effdet.anchors import Anchors
from effdet.loss import DetectionLoss
from torch import Tensor

from torchzoo.model.data import SyntheticData

from .labels import label_anchors, split_levels


class AnchorLoss:
    """effdet's focal plus Huber loss of one output per level, for boxes (B, M, 4) of classes (B, M)."""

    def __init__(self, config: Any, device: torch.device) -> None:
        self.anchors = Anchors.from_config(config).to(device)
        self.loss = DetectionLoss(config)

    def __call__(
        self, class_outputs: list[Tensor], box_outputs: list[Tensor], boxes: Tensor, classes: Tensor
    ) -> Tensor:
        labels = label_anchors(self.anchors.boxes, boxes, classes)
        loss: Tensor = self.loss(
            class_outputs,
            box_outputs,
            split_levels(labels.classes, class_outputs),
            split_levels(labels.box_offsets, box_outputs),
            labels.positives,
        )[0]
        return loss


def draw_boxes(data: SyntheticData, batch_size: int, box_count: int, image_size: int) -> Tensor:
    """Boxes (B, M, 4) of 1/20 to 4/5 of the image's side, so that all levels match some.

    Sizes are uniform in their logarithm, the ratios of height and width are up to 3/2.
    """
    shape = (batch_size, box_count, 1)
    size, stretch = 0.05 * 16 ** data.uniform(*shape), 1.5 ** data.uniform(*shape, low=-0.5, high=0.5)
    extent = torch.cat([size * stretch, size / stretch], dim=2)
    corner = (1 - extent) * data.uniform(batch_size, box_count, 2)
    return image_size * torch.cat([corner, corner + extent], dim=2)
