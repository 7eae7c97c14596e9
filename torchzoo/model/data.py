"""Make synthetic batches: seeded, equal for every device, and on the device from the start."""

from __future__ import annotations

import torch
from torch import Tensor

#: The distance between seeds of shards, so that those of neighbouring seeds never coincide.
_SHARD_STEP = 1_000_003
#: COCO's train2017 (Lin et al., 2014, arXiv:1405.0312) has 860,001 boxes in 117,266 images with any: 7.3 per image.
OBJECTS_PER_IMAGE = 7


class SyntheticData:
    """A source of random batches from a seeded CPU generator, moved to `device`: equal seeds give equal data anywhere.

    On the meta device tensors have no values, so no random numbers are drawn there. Each `shard` of a batch that
    several processes share has other numbers; the first shard has those of an unshared batch.
    """

    def __init__(self, device: torch.device, seed: int, shard: int = 0) -> None:
        self.device = device
        self.generator = torch.Generator(device="cpu").manual_seed(seed + shard * _SHARD_STEP)

    def normal(self, *shape: int, dtype: torch.dtype = torch.float32) -> Tensor:
        """Draw standard normal numbers of `shape`."""
        if self.device.type == "meta":
            return torch.empty(shape, dtype=dtype, device="meta")
        return torch.randn(shape, generator=self.generator, dtype=dtype, device="cpu").to(self.device)

    def uniform(self, *shape: int, low: float = 0.0, high: float = 1.0, dtype: torch.dtype = torch.float32) -> Tensor:
        """Draw numbers of `shape`, uniform in [low, high)."""
        if self.device.type == "meta":
            return torch.empty(shape, dtype=dtype, device="meta")
        unit = torch.rand(shape, generator=self.generator, dtype=dtype, device="cpu")
        return (low + (high - low) * unit).to(self.device)

    def integers(self, low: int, high: int, *shape: int) -> Tensor:
        """Draw int64 numbers of `shape`, uniform in [low, high)."""
        if self.device.type == "meta":
            return torch.empty(shape, dtype=torch.int64, device="meta")
        return torch.randint(low, high, shape, generator=self.generator, device="cpu").to(self.device)

    def images(self, batch_size: int, channels: int, height: int, width: int) -> Tensor:
        """Draw (B, C, H, W) standard normal numbers, like images after the usual normalisation."""
        return self.normal(batch_size, channels, height, width)

    def labels(self, batch_size: int, num_classes: int) -> Tensor:
        """Draw (B,) int64 class numbers."""
        return self.integers(0, num_classes, batch_size)

    def tokens(self, batch_size: int, length: int, vocabulary_size: int) -> Tensor:
        """Draw (B, T) int64 token numbers."""
        return self.integers(0, vocabulary_size, batch_size, length)

    def boxes(self, count: int, height: int, width: int) -> Tensor:
        """Draw (count, 4) boxes x1, y1, x2, y2 inside an image, with sides of 1/20 to 1/2 of the image's."""
        size = torch.tensor([width, height], dtype=torch.float32, device=self.device)
        extent = self.uniform(count, 2, low=0.05, high=0.5)
        corner = self.uniform(count, 2) * (1.0 - extent)
        return torch.cat([corner * size, (corner + extent) * size], dim=1)
