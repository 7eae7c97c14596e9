"""What the anchors of EfficientDet (Tan, Pang and Le, 2019, arXiv:1911.09070) are to predict.

As in the TensorFlow object detection API: an anchor takes the box that it overlaps most, if by half (IoU), and each box
also takes the anchor that it overlaps most. All boxes are y1, x1, y2, x2, in pixels.

Shape letters: B batch, M boxes per image, A anchors of all levels, H and W of a level, N anchors per location.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor
from torchvision.ops import box_iou

MATCH_IOU = 0.5
BACKGROUND = -1


class Labels(NamedTuple):
    classes: Tensor  # (B, A)
    box_offsets: Tensor  # (B, A, 4), zero for background
    positives: Tensor  # (B,): anchors that have an object


def label_anchors(anchors: Tensor, boxes: Tensor, classes: Tensor) -> Labels:
    """The labels of anchors (A, 4) for the objects in boxes (B, M, 4) of classes (B, M)."""
    anchors, boxes = anchors.float(), boxes.float()  # a 16-bit number holds no coordinate of hundreds of pixels exactly
    overlap = box_iou(boxes.flatten(0, 1), anchors).unflatten(0, boxes.shape[:2])  # (B, M, A)
    best, match = overlap.max(dim=1)  # (B, A)
    forced = torch.zeros_like(overlap).scatter_(2, overlap.argmax(dim=2, keepdim=True), 1.0)
    is_forced, forced_match = forced.max(dim=1)  # (B, A)
    match = torch.where(is_forced > 0, forced_match, match)
    positive = (best >= MATCH_IOU) | (is_forced > 0)
    matched_boxes = boxes.gather(1, match[..., None].expand(-1, -1, 4))  # (B, A, 4)
    return Labels(
        classes=torch.where(positive, classes.gather(1, match), BACKGROUND),
        box_offsets=torch.where(positive[..., None], encode(matched_boxes, anchors), 0.0),
        positives=positive.sum(dim=1),
    )


def encode(boxes: Tensor, anchors: Tensor) -> Tensor:
    """Boxes (B, A, 4) relative to their anchors (A, 4): centres in anchor sizes, logarithms of the sizes."""
    centre, size = centre_and_size(boxes)
    anchor_centre, anchor_size = centre_and_size(anchors)
    return torch.cat([(centre - anchor_centre) / anchor_size, (size / anchor_size).log()], dim=-1)


def centre_and_size(boxes: Tensor) -> tuple[Tensor, Tensor]:
    low, high = boxes.chunk(2, dim=-1)
    return (low + high) / 2, high - low


def split_levels(labels: Tensor, outputs: list[Tensor]) -> list[Tensor]:
    """Labels (B, A, ...) as one (B, H, W, N * ...) per level, the sizes taken from the level's outputs (B, C, H, W)."""
    batch_size, width = labels.shape[0], labels[0, 0].numel()
    locations = [(output.shape[2], output.shape[3]) for output in outputs]
    per_location = labels.shape[1] // sum(height * columns for height, columns in locations)
    levels = torch.split(labels, [height * columns * per_location for height, columns in locations], dim=1)
    return [
        level.reshape(batch_size, height, columns, per_location * width)
        for level, (height, columns) in zip(levels, locations, strict=True)
    ]
