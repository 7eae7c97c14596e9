"""ResNet-50 (He et al., 2016, arXiv:1512.03385) classifying ImageNet-sized images."""

import torchvision
from torch import nn

from torchzoo.model.tasks import ImageClassifier


class Model(ImageClassifier):
    def build_network(self) -> nn.Module:
        return torchvision.models.resnet50()
