"""SqueezeNet 1.1 (Iandola et al., 2016, arXiv:1602.07360) classifying ImageNet-sized images."""

import torchvision
from torch import nn

from torchzoo.model.tasks import ImageClassifier


class Model(ImageClassifier):
    def build_network(self) -> nn.Module:
        return torchvision.models.squeezenet1_1()
