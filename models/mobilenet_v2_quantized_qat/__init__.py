"""MobileNetV2 (Sandler et al., 2018, arXiv:1801.04381) in 8 bits (Jacob et al., 2017, arXiv:1712.05877), classifying.

Training is quantization-aware (FX graph mode, x86 backend): every weight and activation passes its observer and a fake
quantization. Evaluation runs the converted network, int8 kernels on the CPU, its ranges observed on 8 images.
torch.ao.quantization is deprecated in favour of torchao; torch 2.15 still has it.
"""

import warnings

import torch
import torchvision
from torch import nn
from torch.ao.quantization import get_default_qat_qconfig_mapping
from torch.ao.quantization.quantize_fx import convert_fx, prepare_qat_fx

from torchzoo.model import ImageClassifier
from torchzoo.spec import Mode


class Model(ImageClassifier):
    @torch.no_grad()
    def build(self) -> None:
        with warnings.catch_warnings(action="ignore", category=DeprecationWarning):
            super().build()
            if self.mode is Mode.EVAL:
                (images,) = self.batch.inputs
                self.network.eval()(images[:8])
                self.network = convert_fx(self.network)  # type: ignore[arg-type]

    def build_network(self) -> nn.Module:
        example_inputs = (torch.zeros(1, 3, self.image_size, self.image_size),)
        return prepare_qat_fx(torchvision.models.mobilenet_v2(), get_default_qat_qconfig_mapping("x86"), example_inputs)
