"""Classifiers in 8 bits (Jacob et al., 2017, arXiv:1712.05877), by FX graph mode quantization with the x86 backend.

torch.ao.quantization is deprecated in favour of torchao; torch 2.15 still has it.
"""

from __future__ import annotations

import abc
import warnings

import torch
from torch import nn
from torch.ao.quantization import disable_observer, get_default_qat_qconfig_mapping
from torch.ao.quantization.quantize_fx import convert_fx, prepare_qat_fx

from torchzoo.case import Mode
from torchzoo.model.tasks import ImageClassifier

CALIBRATION_IMAGES = 8


class QuantizedImageClassifier(ImageClassifier):
    """Training is quantization-aware: every weight and activation passes its observer and a fake quantization.

    Evaluation runs the converted network, int8 kernels on the CPU, its ranges observed on `CALIBRATION_IMAGES` images.
    """

    is_converted: bool = True  # in evaluation

    @classmethod
    def reference(cls) -> type[QuantizedImageClassifier]:
        """The network before it is converted: with the same ranges, its fake quantization gives what int8 kernels give.

        (A kernel may round a number between two steps to the other one.)
        """
        return type("Reference", (cls,), {"is_converted": False})

    @abc.abstractmethod
    def build_float_network(self) -> nn.Module: ...

    @torch.no_grad()
    def build(self) -> None:
        with warnings.catch_warnings(action="ignore", category=DeprecationWarning):
            super().build()
            if self.mode is Mode.EVAL:
                (images,) = self.batch.inputs
                self.network.eval()(images[:CALIBRATION_IMAGES])
                if self.is_converted:
                    self.network = convert_fx(self.network)  # type: ignore[arg-type]
                else:
                    self.network.apply(disable_observer)

    def build_network(self) -> nn.Module:
        example_inputs = (torch.zeros(1, 3, self.image_size, self.image_size),)
        return prepare_qat_fx(self.build_float_network(), get_default_qat_qconfig_mapping("x86"), example_inputs)
