"""ViT-g/14 (Zhai et al., 2021, arXiv:2106.04560) classifying ImageNet-sized images."""

import timm
from torch import nn

from torchzoo.model.tasks import TimmClassifier


class Model(TimmClassifier):
    def build_network(self) -> nn.Module:
        return timm.create_model("vit_giant_patch14_224")
