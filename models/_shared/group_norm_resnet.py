"""ResNet-18 for private training (Abadi et al., 2016, arXiv:1607.00133): batch normalisation would mix the images."""

from __future__ import annotations

from torch import nn
from torchvision.models.resnet import BasicBlock, ResNet

GROUPS = 32  # what opacus.validators.ModuleValidator.fix puts in


def group_norm_resnet18(num_classes: int, block: type[nn.Module] = BasicBlock) -> nn.Module:
    """torchvision's ResNet-18 with group normalisation in the place of batch normalisation."""
    network: nn.Module = ResNet(block, [2, 2, 2, 2], num_classes=num_classes, norm_layer=group_norm)
    return network


def group_norm(channels: int) -> nn.GroupNorm:
    """Normalises groups of channels of each image by itself."""
    return nn.GroupNorm(GROUPS, channels)
