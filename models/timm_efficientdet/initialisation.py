"""Random weights of a detector that give the work of trained ones: scores and boxes that differ from place to place."""

from typing import Any

import torch
from torch import Tensor, nn

BOX_SCALE = 0.3  # of the last layer: boxes then differ from their anchors by a fifth or so, as trained ones do


@torch.no_grad()
def initialise(network: Any, images: Tensor) -> None:
    """Give every batch normalisation of an effdet `EfficientDet` the statistics that it meets on `images`.

    Batches of noise look alike to deep layers, so that few images would give variances far too small for others.
    """
    network.eval()  # no layer is dropped
    for module in network.modules():
        if isinstance(module, nn.BatchNorm2d):
            module.train()
            module.momentum = 1.0
    network(images)
    network.box_net.predict.conv_pw.weight.mul_(BOX_SCALE)
