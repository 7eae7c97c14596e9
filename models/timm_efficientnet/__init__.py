"""EfficientNet-B0 (Tan and Le, 2019, arXiv:1905.11946) classifying ImageNet-sized images."""

import timm
from torch import nn

from torchzoo.model.tasks import TimmClassifier


class Model(TimmClassifier):
    def build_network(self) -> nn.Module:
        return timm.create_model("efficientnet_b0")
