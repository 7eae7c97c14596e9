"""The base of transformers networks that segment what a prompt asks for."""

from __future__ import annotations

import abc
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from torchzoo.networks.sized import SizedModel


class PromptableSegmenter(SizedModel):
    """A network that finds what a prompt asks for in images. It is evaluated; there are no losses here."""

    sample_unit = "images"
    #: The outputs of the network that a step returns.
    results: ClassVar[tuple[str, ...]]

    network: nn.Module
    batch: dict[str, Tensor]

    def build(self) -> None:
        self.network = self.build_network()
        self.batch = self.build_inputs()

    @abc.abstractmethod
    def build_network(self) -> nn.Module: ...

    @abc.abstractmethod
    def build_inputs(self) -> dict[str, Tensor]:
        """The network's inputs by name: images and prompts."""

    def networks(self) -> dict[str, nn.Module]:
        return {"network": self.network}

    @property
    def example_inputs(self) -> dict[str, Any]:
        return self.batch

    @torch.no_grad()
    def eval_step(self) -> list[Tensor]:
        with self.autocast():
            outputs = self.network(**self.batch)
        return [outputs[name] for name in self.results]
