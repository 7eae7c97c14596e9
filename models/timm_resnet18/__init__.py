"""ResNet-18 (He et al., 2016, arXiv:1512.03385) as timm has and trains it: by SGD, on ImageNet-sized images.

timm would start the last scale of every residual branch at 0, so that no gradient enters the branches in the first
step; here it starts at 1, as in the paper.

It has 11,689,512 parameters; timm's table (results/benchmark-infer-amp-nhwc-pt113-cu117-rtx3090.csv) says 11.69 million
and 1.82 GMAC for an image. By our count an eval step of 128 images takes 464 GFLOP and a train step 1,363. timm's GMAC
give 466. Three times that, without the gradient of the images, are 1,368.
"""

import timm
from torch import nn

from torchzoo.model.tasks import TimmClassifier


class Model(TimmClassifier):
    def build_network(self) -> nn.Module:
        return timm.create_model("resnet18", zero_init_last=False)
