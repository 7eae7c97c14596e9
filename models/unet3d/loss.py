"""The mean of cross entropy and Dice loss (Milletari, Navab and Ahmadi, 2016, arXiv:1606.04797), background left out.

Shape letters: B batch, K classes, S side in voxels.
"""

import torch
from torch import Tensor
from torch.nn import functional as F


def segmentation_loss(logits: Tensor, labels: Tensor) -> Tensor:
    """The loss of logits (B, K, S, S, S) against class numbers (B, S, S, S), of which 0 is the background."""
    return (F.cross_entropy(logits, labels) + dice_loss(logits.softmax(dim=1), labels)) / 2


def dice_loss(probabilities: Tensor, labels: Tensor, epsilon: float = 1e-6) -> Tensor:
    """1 - 2 |P and T| / (|P| + |T|), soft, for each volume and class but the background, then their mean.

    Means over voxels replace the sums, which a 16-bit number could not hold; the ratio is the same.
    """
    classes = torch.arange(1, probabilities.shape[1], device=labels.device).view(1, -1, 1, 1, 1)
    targets = (labels.unsqueeze(1) == classes).to(probabilities.dtype)  # (B, K - 1, S, S, S), one-hot
    probabilities, voxels = probabilities[:, 1:], (2, 3, 4)
    overlap = (probabilities * targets).mean(voxels)  # (B, K - 1)
    total = probabilities.mean(voxels) + targets.mean(voxels)
    return 1 - ((2 * overlap + epsilon) / (total + epsilon)).mean()
