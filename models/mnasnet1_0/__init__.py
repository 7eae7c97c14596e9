"""MnasNet-B1 (Tan et al., 2018, arXiv:1807.11626) at width 1.0, classifying ImageNet-sized images."""

import torchvision
from torch import nn

from torchzoo.model.tasks import ImageClassifier


class Model(ImageClassifier):
    def build_network(self) -> nn.Module:
        return torchvision.models.mnasnet1_0()
