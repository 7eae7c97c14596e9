"""ResNeXt-50 32x4d (Xie et al., 2016, arXiv:1611.05431) classifying ImageNet-sized images."""

import torchvision
from torch import nn

from torchzoo.model.tasks import ImageClassifier


class Model(ImageClassifier):
    def build_network(self) -> nn.Module:
        return torchvision.models.resnext50_32x4d()
