"""Cross entropy plus Dice loss (Milletari, Navab and Ahmadi, 2016, arXiv:1606.04797).

Shape letters: B batch, K classes, H height, W width.
"""

import torch
from torch import Tensor
from torch.nn import functional as F


def segmentation_loss(logits: Tensor, masks: Tensor) -> Tensor:
    """The loss of logits (B, K, H, W) against masks (B, H, W) of class numbers."""
    return F.cross_entropy(logits, masks) + dice_loss(logits.softmax(dim=1), masks)


def dice_loss(probabilities: Tensor, masks: Tensor, epsilon: float = 1e-6) -> Tensor:
    """1 - 2 |P and T| / (|P| + |T|), soft, each class over the whole batch, then the mean over classes.

    Means over pixels replace the sums, which a 16-bit number could not hold; the ratio is the same.
    """
    classes = torch.arange(probabilities.shape[1], device=masks.device).view(1, -1, 1, 1)
    targets = (masks.unsqueeze(1) == classes).to(probabilities.dtype)  # (B, K, H, W), one-hot
    pixels = (0, 2, 3)
    overlap = (probabilities * targets).mean(pixels)  # (K,)
    total = probabilities.mean(pixels) + targets.mean(pixels)  # (K,)
    return 1 - (2 * overlap / (total + epsilon)).mean()
