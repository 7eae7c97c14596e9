"""MobileNetV3-Large (Howard et al., 2019, arXiv:1905.02244) classifying ImageNet-sized images."""

import torchvision
from torch import nn

from torchzoo.model.tasks import ImageClassifier


class Model(ImageClassifier):
    def build_network(self) -> nn.Module:
        return torchvision.models.mobilenet_v3_large()
