"""MobileNetV2 (Sandler et al., 2018, arXiv:1801.04381) classifying ImageNet-sized images."""

import torchvision
from torch import nn

from torchzoo.model.tasks import ImageClassifier


class Model(ImageClassifier):
    def build_network(self) -> nn.Module:
        return torchvision.models.mobilenet_v2()
