"""VGG-16 (Simonyan and Zisserman, 2014, arXiv:1409.1556) classifying ImageNet-sized images."""

import torchvision
from torch import nn

from torchzoo.model.tasks import ImageClassifier


class Model(ImageClassifier):
    def build_network(self) -> nn.Module:
        return torchvision.models.vgg16()
