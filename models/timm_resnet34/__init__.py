"""ResNet-34 (He et al., 2016, arXiv:1512.03385) as timm has and trains it: by SGD, on ImageNet-sized images.

timm would start the last scale of every residual branch at 0, so that no gradient enters the branches in the first
step; here it starts at 1, as in the paper.

It has 21,797,672 parameters; timm's table (results/benchmark-infer-amp-nhwc-pt113-cu117-rtx3090.csv) says 21.80 million
and 3.67 GMAC for an image. By our count an eval step of 128 images takes 938 GFLOP and a train step 2,784. timm's GMAC
give 940. Three times that, without the gradient of the images, are 2,788.
"""

import timm
from torch import nn

from torchzoo.model.tasks import TimmClassifier


class Model(TimmClassifier):
    def build_network(self) -> nn.Module:
        return timm.create_model("resnet34", zero_init_last=False)
