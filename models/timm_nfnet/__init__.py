"""NFNet-F0 (Brock et al., 2021, arXiv:2102.06171), without normalisation, classifying images of 192 x 192.

SkipInit starts the gain of every residual branch at 0, so that no gradient enters the branches in the first step; here
it starts at 1. Training is by timm's plain SGD, without the paper's adaptive gradient clipping.
"""

import timm
from torch import nn

from torchzoo.model.tasks import TimmClassifier


class Model(TimmClassifier):
    def build_network(self) -> nn.Module:
        network = timm.create_model("dm_nfnet_f0")
        for name, parameter in network.named_parameters():
            if name.endswith("skipinit_gain"):
                nn.init.ones_(parameter)
        return network
