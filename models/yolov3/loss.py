"""YOLOv3-SPP's loss: generalised IoU (Rezatofighi et al., 2019, arXiv:1902.09630), objectness and class.

Every anchor whose shape overlaps an object's by more than a threshold is responsible for it, in the cell of the
object's centre. All N A pairs of object and anchor of a level are computed, with weight 0 for those that don't match,
so that no shape depends on the data. Where two objects have one anchor, its objectness target is the larger overlap.

Shape letters: B batch, N objects per image, A anchors per cell, K classes, h and w the grid of a level.
"""

import math
from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn import functional as F


class Objects(NamedTuple):
    boxes: Tensor  # (B, N, 4) centre x, centre y, width, height as parts of the image's, in [0, 1]
    labels: Tensor  # (B, N) class numbers


class Gains(NamedTuple):
    box: float = 3.54
    objectness: float = 64.3 * 416 / 320  # tuned at 320 pixels, and scaled with the side
    classes: float = 37.4


SHAPE_THRESHOLD = 0.2
LARGEST = math.log(1e3)  # a side's logarithm, in anchors


def detection_loss(predictions: list[Tensor], anchors: Tensor, strides: tuple[int, ...], objects: Objects) -> Tensor:
    """The weighted sum of the losses of all levels, from raw predictions (B, A, h, w, 5 + K) of each."""
    levels = zip(predictions, anchors, strides, strict=True)
    losses = [level_loss(level, level_anchors / stride, objects) for level, level_anchors, stride in levels]
    box, objectness, classes = (torch.stack(parts).sum() for parts in zip(*losses, strict=True))
    gains = Gains()
    return gains.box * box + gains.objectness * objectness + gains.classes * classes


def level_loss(predictions: Tensor, anchors: Tensor, objects: Objects) -> tuple[Tensor, Tensor, Tensor]:
    """Box, objectness and class loss of one level; `anchors` (A, 2) in cells."""
    batch_size, anchor_count, height, width, _ = predictions.shape
    x, y, w, h = objects.boxes.unsqueeze(2).unbind(-1)  # (B, N, 1) each, below in cells
    x, w, y, h = x * width, w * width, y * height, h * height
    column, row = x.long().clamp(max=width - 1), y.long().clamp(max=height - 1)
    image = torch.arange(batch_size, device=x.device).view(-1, 1, 1)
    anchor = torch.arange(anchor_count, device=x.device)
    matched = (shape_overlap(w, h, anchors) > SHAPE_THRESHOLD).to(predictions.dtype)  # (B, N, A)
    count = matched.sum().clamp(min=1)

    chosen = predictions[image, anchor, row, column]  # (B, N, A, 5 + K)
    # Box corners relative to the cell: predicted ones, then those wanted.
    centre, size = chosen[..., :2].sigmoid(), chosen[..., 2:4].clamp(max=LARGEST).exp() * anchors
    wanted_centre = torch.stack([x - column, y - row], dim=-1)  # (B, N, 1, 2)
    wanted_size = torch.stack([w, h], dim=-1)
    overlap = generalised_iou(centre, size, wanted_centre, wanted_size)  # (B, N, A)
    box_loss = ((1.0 - overlap) * matched).sum() / count

    target = torch.zeros_like(predictions[..., 4])  # (B, A, h, w)
    cell = ((image * anchor_count + anchor) * height + row) * width + column  # (B, N, A)
    value = (overlap.detach().clamp(min=0) * matched).to(target.dtype)
    target.view(-1).scatter_reduce_(0, cell.flatten(), value.flatten(), "amax")
    objectness_loss = F.binary_cross_entropy_with_logits(predictions[..., 4], target)

    logits = chosen[..., 5:]
    is_class = objects.labels[:, :, None, None] == torch.arange(logits.shape[-1], device=x.device)  # (B, N, 1, K)
    errors = F.binary_cross_entropy_with_logits(logits, is_class.to(logits.dtype).expand_as(logits), reduction="none")
    class_loss = (errors.mean(-1) * matched).sum() / count
    return box_loss, objectness_loss, class_loss


def shape_overlap(w: Tensor, h: Tensor, anchors: Tensor) -> Tensor:
    """IoU (B, N, A) of boxes with sides (B, N, 1) and anchors (A, 2), all put at the same centre."""
    anchor_w, anchor_h = anchors.unbind(-1)
    intersection = torch.minimum(w, anchor_w) * torch.minimum(h, anchor_h)
    return intersection / (w * h + anchor_w * anchor_h - intersection)


def generalised_iou(centre1: Tensor, size1: Tensor, centre2: Tensor, size2: Tensor, epsilon: float = 1e-9) -> Tensor:
    """Generalised IoU (...) of boxes by centre and size (..., 2)."""
    low1, high1, low2, high2 = (c + s * side for c, s in ((centre1, size1), (centre2, size2)) for side in (-0.5, 0.5))
    intersection = area((torch.minimum(high1, high2) - torch.maximum(low1, low2)).clamp(min=0))
    union = area(size1) + area(size2) - intersection + epsilon
    hull = area(torch.maximum(high1, high2) - torch.minimum(low1, low2)) + epsilon
    return intersection / union - (hull - union) / hull


def area(sides: Tensor) -> Tensor:
    """(..., 2) to (...); the gradient of `prod` would wait for the device to look for zeros."""
    return sides[..., 0] * sides[..., 1]
