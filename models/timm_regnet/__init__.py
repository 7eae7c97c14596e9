"""RegNetY-12GF (Radosavovic et al., 2020, arXiv:2003.13678) classifying ImageNet-sized images.

timm would start the last scale of every residual branch at 0, so that no gradient enters the branches in the first
step; here it starts at 1, as in the paper.
"""

import timm
from torch import nn

from torchzoo.model.tasks import TimmClassifier


class Model(TimmClassifier):
    def build_network(self) -> nn.Module:
        return timm.create_model("regnety_120", zero_init_last=False)
