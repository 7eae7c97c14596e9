"""VoVNet-39 (Lee et al., 2019, arXiv:1904.09730) classifying ImageNet-sized images."""

import timm
from torch import nn

from torchzoo.model.tasks import TimmClassifier


class Model(TimmClassifier):
    def build_network(self) -> nn.Module:
        return timm.create_model("vovnet39a")
