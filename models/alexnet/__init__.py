"""AlexNet (Krizhevsky, 2014, arXiv:1404.5997, the one-tower form) classifying ImageNet-sized images."""

import torchvision
from torch import nn

from torchzoo.model.tasks import ImageClassifier


class Model(ImageClassifier):
    def build_network(self) -> nn.Module:
        return torchvision.models.alexnet()
