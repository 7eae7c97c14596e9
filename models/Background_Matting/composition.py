"""Putting a matte on another background, and the losses of mattes (Sengupta et al., 2020, section 4.2).

Shape letters: B batch, C channels, S side in pixels. Images and alpha are in [-1, 1].
"""

import torch
from torch import Tensor
from torch.nn import functional as F

MARGIN = 10  # pixels that stay between a shifted person and the image's edge


def compose(alpha: Tensor, foreground: Tensor, background: Tensor) -> Tensor:
    opacity = (alpha + 1) / 2
    return opacity * foreground + (1 - opacity) * background


def masked_l1(a: Tensor, b: Tensor, mask: Tensor) -> Tensor:
    """Mean |a - b| of (B, C, S, S) over the pixels and channels where `mask` (B, 1, S, S) is 1."""
    return ((a - b).abs() * mask).mean() / mask.mean().clamp(min=1e-6)


def edge_distance(a: Tensor, b: Tensor) -> Tensor:
    """Mean L1 distance of the horizontal and vertical Sobel derivatives of (B, 1, S, S)."""
    difference = F.pad(a - b, (1, 1, 1, 1))
    smooth_rows = difference[:, :, :-2] + 2 * difference[:, :, 1:-1] + difference[:, :, 2:]
    smooth_columns = difference[..., :-2] + 2 * difference[..., 1:-1] + difference[..., 2:]
    horizontal = smooth_rows[..., 2:] - smooth_rows[..., :-2]
    vertical = smooth_columns[:, :, 2:] - smooth_columns[:, :, :-2]
    return horizontal.abs().mean() + vertical.abs().mean()


def random_shift(segmentation: Tensor) -> Tensor:
    """Columns (B,) by which each person of `segmentation` (B, 1, S, S) can move and stay in the image, at random."""
    count, _, _, width = segmentation.shape
    column = torch.arange(width, device=segmentation.device)
    occupied = (segmentation > 0).any(dim=2).squeeze(1)  # (B, S)
    first = torch.where(occupied, column, width).amin(dim=1)  # (B,)
    last = torch.where(occupied, column, -1).amax(dim=1)
    lowest, highest = MARGIN - first, width - MARGIN - last
    fraction = torch.rand(count, device=segmentation.device)
    return lowest + (fraction * (highest - lowest)).floor().long()


def shift_columns(images: Tensor, shift: Tensor) -> Tensor:
    """`images` (B, C, S, S), each rolled to the right by its `shift` (B,)."""
    width = images.shape[-1]
    column = torch.arange(width, device=images.device)
    source = (column - shift[:, None]) % width  # (B, S)
    return images.gather(3, source[:, None, None, :].expand_as(images))
