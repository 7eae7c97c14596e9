"""ResNet-18 as Opacus can take it: group normalisation, and nothing in place."""

from __future__ import annotations

from torch import Tensor, nn
from torchvision.models.resnet import BasicBlock

from .._shared.group_norm_resnet import group_norm_resnet18


class Block(BasicBlock):  # type: ignore[misc]  # torchvision is not typed
    """torchvision's block, with the identity added out of place.

    Opacus' hooks forbid to change a layer's output in place (https://github.com/meta-pytorch/opacus/issues/828).
    """

    def forward(self, x: Tensor) -> Tensor:
        identity = x if self.downsample is None else self.downsample(x)
        out = self.relu(self.bn1(self.conv1(x)))
        out = self.bn2(self.conv2(out))
        activation: Tensor = self.relu(out + identity)
        return activation


def out_of_place_resnet18(num_classes: int) -> nn.Module:
    network = group_norm_resnet18(num_classes, Block)
    for module in network.modules():
        if isinstance(module, nn.ReLU):
            module.inplace = False
    return network
