"""ResNet-34 (He et al., 2016, arXiv:1512.03385) as timm has and trains it: by SGD, on ImageNet-sized images.

timm would start the last scale of every residual branch at 0, so that no gradient enters the branches in the first
step; here it starts at 1, as in the paper.
"""

import timm
from torch import nn

from torchzoo.tasks import TimmClassifier


class Model(TimmClassifier):
    def build_network(self) -> nn.Module:
        return timm.create_model("resnet34", zero_init_last=False)
