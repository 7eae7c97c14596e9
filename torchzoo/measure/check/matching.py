"""Compare detections as sets, matched by overlap within a class and not by position."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

#: Two detections match if their boxes overlap at least this much (IoU), ...
MIN_OVERLAP = 0.9
#: ... their masks overlap at least this much, ...
MIN_MASK_OVERLAP = 0.8
#: ... and their scores differ by no more than this (absolute, or relative to the larger one, whichever is more).
SCORE_TOLERANCE = 0.02


class Detections(NamedTuple):
    """The detections of an image, on the host: boxes (N, 4) by two corners, scores (N,), labels (N,), masks if any.

    Masks (N, 1, H, W) say which pixels of the image are above one half.
    """

    boxes: Tensor
    scores: Tensor
    labels: Tensor
    masks: Tensor | None = None


def is_detections(value: Any) -> bool:
    """Whether the value holds the detections of an image in the form that torchvision's detectors return."""
    return isinstance(value, dict) and {"boxes", "scores", "labels"} <= value.keys()


def from_dict(found: dict[str, Tensor]) -> Detections:
    """Return detections from the form that `is_detections` recognises."""
    host = {name: (value > 0.5 if name == "masks" else value).detach().cpu() for name, value in found.items()}
    return Detections(host["boxes"].double(), host["scores"].double(), host["labels"], host.get("masks"))


def from_rows(rows: Tensor) -> Detections:
    """Return detections from rows (N, 6) of x1, y1, x2, y2, score, class. A row of score zero is padding."""
    rows = rows.detach().cpu().double()
    rows = rows[rows[:, 4] > 0]
    return Detections(rows[:, :4], rows[:, 4], rows[:, 5].long())


def unmatched_share(found: Detections, expected: Detections) -> float:
    """Return the share of all boxes of both sets without a partner in the other set: 0 for equal sets in any order.

    Matching is greedy as in the COCO evaluation: the expected detection with the best score comes first. Each takes
    the partner that overlaps most, among detections of the same class and about the same score.
    """
    total = len(found.boxes) + len(expected.boxes)
    if total == 0:
        return 0.0
    overlaps = _overlaps(expected.boxes, found.boxes)
    difference = (expected.scores[:, None] - found.scores).abs()
    largest = torch.maximum(expected.scores[:, None], found.scores[None]).clamp_min(1.0)
    may_match = (expected.labels[:, None] == found.labels) & (difference <= SCORE_TOLERANCE * largest)
    overlaps = torch.where(may_match, overlaps, 0.0)
    matched = 0
    for index in expected.scores.argsort(descending=True).tolist():
        for partner in overlaps[index].argsort(descending=True).tolist():
            if not overlaps[index, partner] >= MIN_OVERLAP:
                break
            if _masks_agree(expected.masks, index, found.masks, partner):
                overlaps[:, partner] = 0.0
                matched += 1
                break
    return 1 - 2 * matched / total


def _overlaps(a: Tensor, b: Tensor) -> Tensor:
    """Return the IoU (N, M) of boxes (N, 4) and (M, 4): 1 for equal boxes without area, 0 for corners not finite."""
    low, high = torch.maximum(a[:, None, :2], b[:, :2]), torch.minimum(a[:, None, 2:], b[:, 2:])
    both = (high - low).clamp_min(0).prod(2)
    either = _areas(a)[:, None] + _areas(b) - both
    equal = (a[:, None] == b).all(2)
    return torch.where(equal, 1.0, both / either).nan_to_num(0.0)


def _areas(boxes: Tensor) -> Tensor:
    return (boxes[:, 2:] - boxes[:, :2]).clamp_min(0).prod(1)


def _masks_agree(expected: Tensor | None, index: int, found: Tensor | None, partner: int) -> bool:
    """Whether two masks overlap enough (IoU).

    NumPy compares them, in one thread. While other cases compile, PyTorch's threads would wait for each other.
    """
    if expected is None or found is None:
        return (expected is None) == (found is None)
    if expected[index].shape != found[partner].shape:
        return False
    one, other = expected[index].numpy(), found[partner].numpy()
    either = np.count_nonzero(one | other)
    return bool(either == 0 or np.count_nonzero(one & other) / either >= MIN_MASK_OVERLAP)
