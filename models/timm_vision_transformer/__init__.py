"""ViT-S/16 (Dosovitskiy et al., 2020, arXiv:2010.11929, in DeiT's small size) classifying ImageNet-sized images."""

import timm
from torch import nn

from torchzoo.model.tasks import TimmClassifier


class Model(TimmClassifier):
    def build_network(self) -> nn.Module:
        return timm.create_model("vit_small_patch16_224")
