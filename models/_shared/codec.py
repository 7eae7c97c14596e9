"""The base of transformers' codecs of audio, and what makes them ready to be measured."""

from __future__ import annotations

from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from torchzoo.model.tasks import Batch, NetworkModel


class AudioCodec(NetworkModel):
    """A network that encodes audio (B, 1, S) to codes and decodes these to audio. It is evaluated."""

    sample_unit = "excerpts"
    #: S: a multiple of all strides together, so that no convolution has to fill up its last window.
    audio_samples: ClassVar[int]

    def build_batch(self) -> Batch:
        return Batch({"input_values": self.data.uniform(self.batch_size, 1, self.audio_samples, low=-1.0)})

    @torch.no_grad()
    def eval_step(self) -> tuple[Tensor, Tensor]:
        with self.autocast():
            outputs = self.forward()
        return outputs.audio_codes, outputs.audio_values


def pad_by_numbers(network: nn.Module) -> None:
    """Make the convolutions of transformers' EnCodec and Mimi know their padding on the host, as the originals do.

    transformers keeps strides and kernel sizes as tensors on the device. To pad, the host reads them: it waits for the
    device, and a compiler has to end its graph, at each convolution. Lengths must be multiples of the strides.
    """
    module: Any
    for module in network.modules():
        if hasattr(module, "padding_total"):
            convolution = module.conv
            (size,), (stride,), (dilation,) = convolution.kernel_size, convolution.stride, convolution.dilation
            del module.padding_total
            module.padding_total = (size - 1) * dilation + 1 - stride
            module._get_extra_padding_for_conv1d = _no_more


def _no_more(_states: Tensor) -> int:
    return 0
