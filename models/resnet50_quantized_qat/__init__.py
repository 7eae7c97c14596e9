"""ResNet-50 (He et al., 2016, arXiv:1512.03385) in 8 bits (Jacob et al., 2017, arXiv:1712.05877), classifying.

Training is quantization-aware; evaluation runs the converted network, int8 kernels on the CPU.
"""

import torchvision
from torch import nn

from .._shared.quantization import QuantizedImageClassifier


class Model(QuantizedImageClassifier):
    def build_float_network(self) -> nn.Module:
        return torchvision.models.resnet50()
