"""The encoder and the queue of MoCo (He et al., 2019, arXiv:1911.05722).

Shape letters: B batch, D size of a representation, Q keys in the queue.
"""

from dataclasses import dataclass

import torch
import torchvision
from torch import Tensor, nn
from torch.nn import functional as F


@dataclass(frozen=True, kw_only=True)
class Config:
    representation_size: int = 128
    queue_size: int = 32_000
    temperature: float = 0.07


class Encoder(nn.Module):
    """Images (B, 3, 224, 224) to representations (B, D) of length 1."""

    def __init__(self, config: Config) -> None:
        super().__init__()
        self.resnet = torchvision.models.resnet50(num_classes=config.representation_size)

    def forward(self, images: Tensor) -> Tensor:
        return F.normalize(self.resnet(images), dim=1)


class Queue(nn.Module):
    """Queries (B, D) and their keys (B, D) to logits (B, 1 + Q): similarities to the own and to the queued keys."""

    keys: Tensor

    def __init__(self, config: Config) -> None:
        super().__init__()
        self.temperature = config.temperature
        keys = F.normalize(torch.randn(config.queue_size, config.representation_size), dim=1)
        self.register_buffer("keys", keys)

    def forward(self, queries: Tensor, own_keys: Tensor) -> Tensor:
        own = (queries * own_keys).sum(dim=1, keepdim=True)  # (B, 1)
        others = queries @ self.keys.T  # (B, Q)
        return torch.cat([own, others], dim=1) / self.temperature
