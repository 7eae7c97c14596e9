"""From raw predictions to detections: decoding, the best candidates, non-maximum suppression per class.

Shape letters: B batch, A anchors per cell, K classes, h and w the grid of a level, P predictions of all levels,
M candidates, D detections.
"""

import torch
from torch import Tensor
from torchvision.ops import box_convert, nms

CANDIDATES = 1000  # pairs of box and class that enter suppression, the best ones in place of those above a threshold
DETECTIONS = 100  # kept per image
OVERLAP_THRESHOLD = 0.6
CLASS_OFFSET = 4096.0  # pixels between the boxes of two classes, so that they never overlap


def decode(predictions: Tensor, anchors: Tensor, stride: int) -> tuple[Tensor, Tensor]:
    """Boxes (B, A h w, 4) as x1, y1, x2, y2 in pixels and scores (B, A h w, K) of one level."""
    values = predictions.to(torch.promote_types(predictions.dtype, torch.float32))  # 16 bits can't hold pixel positions
    height, width = values.shape[2:4]
    row, column = torch.meshgrid(
        torch.arange(height, device=values.device), torch.arange(width, device=values.device), indexing="ij"
    )
    centre = (values[..., :2].sigmoid() + torch.stack([column, row], dim=-1)) * stride  # (B, A, h, w, 2)
    size = values[..., 2:4].exp() * anchors[:, None, None, :]
    boxes = box_convert(torch.cat([centre, size], dim=-1), "cxcywh", "xyxy")
    scores = values[..., 4:5].sigmoid() * values[..., 5:].sigmoid()
    return boxes.flatten(1, 3), scores.flatten(1, 3)


def detect(predictions: list[Tensor], anchors: Tensor, strides: tuple[int, ...]) -> list[Tensor]:
    """Detections (D, 6) of each image: x1, y1, x2, y2, score and class, the best first."""
    levels = [decode(*level) for level in zip(predictions, anchors, strides, strict=True)]
    boxes, scores = (torch.cat(parts, dim=1) for parts in zip(*levels, strict=True))  # (B, P, 4), (B, P, K)
    best, index = scores.flatten(1).topk(CANDIDATES)  # (B, M), sorted
    label = index % scores.shape[-1]
    box = boxes.gather(1, (index // scores.shape[-1])[..., None].expand(-1, -1, 4))  # (B, M, 4)
    separated = box + CLASS_OFFSET * label[..., None]
    detections = torch.cat([box, best[..., None], label[..., None].to(box.dtype)], dim=-1)
    return [
        found[nms(apart, score, OVERLAP_THRESHOLD)[:DETECTIONS]]
        for found, apart, score in zip(detections, separated, best, strict=True)
    ]
