"""The base of transformers networks that segment what a prompt asks for."""

from __future__ import annotations

from typing import ClassVar

import torch
from torch import Tensor

from torchzoo.model.tasks import NetworkModel

from .sized import SizedModel


class PromptableSegmenter(SizedModel, NetworkModel):
    """A network that finds what a prompt asks for in images. It is evaluated; transformers has no losses for it."""

    sample_unit = "images"
    #: The outputs of the network that a step returns.
    results: ClassVar[tuple[str, ...]]

    @torch.no_grad()
    def eval_step(self) -> list[Tensor]:
        with self.autocast():
            outputs = self.forward()
        return [outputs[name] for name in self.results]
