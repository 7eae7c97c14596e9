"""A pool of images generated earlier (Shrivastava et al., 2017, arXiv:1612.07828), resident on the device.

The discriminator sees old images too, so that the generator can't return to tricks it was caught at.
Shape letters: B batch, N images in the pool of each sample of the batch, S side in pixels.
"""

import torch
from torch import Tensor


def exchange(pool: Tensor, images: Tensor) -> Tensor:
    """Of `images` (B, 3, S, S) each second one, by chance, in exchange for one of its `pool` (B, N, 3, S, S)."""
    count, size = pool.shape[:2]
    slots = torch.arange(count, device=pool.device), torch.randint(size, (count,), device=pool.device)
    swap = torch.rand(count, 1, 1, 1, device=pool.device) < 0.5
    images, earlier = images.to(pool.dtype), pool[slots]
    pool[slots] = torch.where(swap, images, earlier)
    return torch.where(swap, earlier, images)
