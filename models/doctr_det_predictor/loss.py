"""Target maps of DBNet (Liao et al., 2019, arXiv:1911.08947) and the loss that docTR trains it with.

The paper's terms are cross entropy on the probability map, with hard negatives mined, the same on the approximate
binary map, and L1 on the thresholds. docTR has focal cross entropy (Lin et al., 2017, arXiv:1708.02002) in place of
the first, weighted by 10, and the Dice loss (Milletari et al., 2016, arXiv:1606.04797) in place of the second.

Shape letters: B batch, S page size, M words.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn import functional as F

SHRINK_RATIO = 0.4
LOWEST_THRESHOLD, HIGHEST_THRESHOLD = 0.3, 0.7
BINARIZATION_SLOPE = 50.0
FOCAL_WEIGHT = 10.0
FOCAL_ALPHA = 0.5
FOCAL_GAMMA = 2.0


class TargetMaps(NamedTuple):
    """Each (B, 1, S, S), or (1, S, S) for a single page."""

    text: Tensor  # 1 in the middle of words: inside their shrunk boxes
    legible: Tensor  # bool: pixels that count; here all of them do
    thresholds: Tensor  # high on the outlines of words, falling on both sides
    outlines: Tensor  # bool: pixels inside dilated boxes, where the thresholds are learnt


def draw_words(boxes: Tensor, page_size: int) -> TargetMaps:
    """The target maps of one page with words in `boxes` (M, 4): x1, y1, x2, y2, in pixels."""
    x = torch.arange(page_size, device=boxes.device)
    y = x[:, None]
    text, outlines = torch.zeros(2, page_size, page_size, dtype=torch.bool, device=boxes.device)
    closeness = torch.zeros(page_size, page_size, device=boxes.device)
    for x1, y1, x2, y2 in boxes:
        width, height = x2 - x1, y2 - y1
        margin = width * height * (1 - SHRINK_RATIO**2) / (2 * (width + height))  # area (1 - r²) / perimeter
        dx, dy = torch.maximum(x1 - x, x - x2), torch.maximum(y1 - y, y - y2)
        distance = torch.hypot(dx.relu(), dy.relu()) + torch.maximum(dx, dy).clamp(max=0)  # < 0 inside
        text |= distance <= -margin
        outlines |= distance <= margin
        closeness = torch.maximum(closeness, 1 - distance.abs() / margin)
    thresholds = LOWEST_THRESHOLD + (HIGHEST_THRESHOLD - LOWEST_THRESHOLD) * closeness
    return TargetMaps(text[None].float(), torch.ones_like(text)[None], thresholds[None], outlines[None])


def detection_loss(logits: Tensor, threshold_logits: Tensor, targets: TargetMaps) -> Tensor:
    """The loss of probability and threshold logits, each (B, 1, S, S).

    Means over pixels replace the sums, which a 16-bit number could not hold; the ratios are the same.
    """
    probabilities, thresholds = logits.sigmoid(), threshold_logits.sigmoid()
    binary = (BINARIZATION_SLOPE * (probabilities - thresholds)).sigmoid()
    errors = (thresholds - targets.thresholds).abs()
    threshold_loss = (errors * targets.outlines).mean() / targets.outlines.to(errors.dtype).mean()
    focal = focal_loss(logits, probabilities, targets.text, targets.legible)
    return threshold_loss + FOCAL_WEIGHT * focal + dice_loss(binary, targets.text, targets.legible)


def focal_loss(logits: Tensor, probabilities: Tensor, text: Tensor, legible: Tensor) -> Tensor:
    cross_entropy = F.binary_cross_entropy_with_logits(logits, text, reduction="none")
    missing = probabilities + text - 2 * probabilities * text  # 1 - the probability of what is true
    weight = FOCAL_ALPHA * text + (1 - FOCAL_ALPHA) * (1 - text)
    return (weight * missing**FOCAL_GAMMA * cross_entropy * legible).mean() / legible.to(logits.dtype).mean()


def dice_loss(binary: Tensor, text: Tensor, legible: Tensor) -> Tensor:
    overlap = (binary * text * legible).mean()
    total = ((binary + text) * legible).mean()
    return 1 - 2 * overlap / total
