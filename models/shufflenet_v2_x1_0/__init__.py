"""ShuffleNetV2 1x (Ma et al., 2018, arXiv:1807.11164) classifying ImageNet-sized images."""

import torchvision
from torch import nn

from torchzoo.model.tasks import ImageClassifier


class Model(ImageClassifier):
    def build_network(self) -> nn.Module:
        return torchvision.models.shufflenet_v2_x1_0()
