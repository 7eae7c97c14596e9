"""Random weights for a detector: rare objects, frequent and rare classes, and statistics for evaluation."""

import math

import torch
from torch import Tensor, nn

from .network import Head, YOLOv3

# Most cells hold no object, and heads start with that (Lin et al., 2017, arXiv:1708.02002).
OBJECT_PROBABILITY = 0.01
CLASS_PROBABILITY = 0.01
# Deviation of the class biases: like COCO's, a few classes have most of the objects.
CLASS_BIAS_DEVIATION = 1.5


@torch.no_grad()
def initialise(network: YOLOv3) -> None:
    for head in network.heads:
        assert isinstance(head, Head)
        assert head.output.bias is not None
        biases = head.output.bias.view(head.shape)  # (A, 5 + K)
        biases[:, 4] = logit(OBJECT_PROBABILITY)
        biases[:, 5:] = logit(CLASS_PROBABILITY)
        biases[:, 5:] += CLASS_BIAS_DEVIATION * torch.randn(biases.shape[1] - 5)


def logit(probability: float) -> float:
    return math.log(probability / (1.0 - probability))


@torch.no_grad()
def take_statistics(network: nn.Module, images: Tensor) -> None:
    """Give every batch normalisation the statistics of `images` (B, 3, H, W), as if it had been trained on them."""
    norms = [module for module in network.modules() if isinstance(module, nn.BatchNorm2d)]
    for norm in norms:
        norm.momentum = 1.0
    network.train()(images)
    for norm in norms:
        norm.momentum = 0.1
