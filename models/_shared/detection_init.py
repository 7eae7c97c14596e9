"""Random weights that give a detector as much work as trained weights do.

Layers are scaled by what one forward pass shows of their outputs (data-dependent initialisation, after Krähenbühl
et al., 2015, arXiv:1511.06856).
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn
from torchvision.models.resnet import Bottleneck
from torchvision.ops import FrozenBatchNorm2d

# Coarse pyramid levels have fewer anchors. With larger features they, too, have some of the best 1000, so that objects
# are from 30 to 600 pixels.
PYRAMID_SCALES = (1.0, 1.25, 1.6, 2.3)
# Small residual branches, as trained ones are (Goyal et al., 2017, arXiv:1706.02677, start them at 0), and in training
# small features keep SGD stable at a learning rate of 0.02 without a warm-up.
RESIDUAL_SCALE = 0.2
TRAINING_SCALE = 0.1
# Class logits and the background's lead over the others: of 1000 proposals, three in four are background, and about
# 1000 pairs of box and class score above the threshold of 0.05.
LOGIT_SCALE = 2.0
BACKGROUND_LOGIT = 8.0


@torch.no_grad()
def initialise_rcnn(network: Any, image: Tensor, *, detecting: bool) -> None:
    """Scale backbone and pyramid by their outputs on `image`, and the box classifier if `detecting` (not training).

    `network` is a torchvision `GeneralizedRCNN` on a ResNet with frozen BatchNorm; the background is class 0.
    """
    scale = 1.0 if detecting else TRAINING_SCALE
    deviations: dict[nn.Module, float] = {}
    if hasattr(network.backbone, "fpn"):
        layers = [layer for (layer,) in network.backbone.fpn.layer_blocks]
        deviations |= {layer: scale * level for layer, level in zip(layers, PYRAMID_SCALES, strict=True)}
    else:  # all anchors of one map get the same chance, objects are from 10 to 700 pixels
        deviations[network.rpn.head.cls_logits] = scale
    classifier = network.roi_heads.box_predictor.cls_score
    if detecting:
        deviations[classifier] = LOGIT_SCALE
    calibrate(network, image, deviations, scale=scale)
    if detecting:
        classifier.bias[0] += BACKGROUND_LOGIT


@torch.no_grad()
def initialise_dense(
    network: Any, image: Tensor, *, class_logit: float | None, box_distance: float | None = None
) -> None:
    """Scale backbone and pyramid by their outputs on `image`; where given, set the mean of the head's outputs too.

    `network` is a torchvision `RetinaNet` or `FCOS` on five pyramid levels. `class_logit` decides how many pairs of
    place and class score above the threshold; FCOS's `box_distance`, from a place to its box's sides, is in strides.
    Both deviate by 1.
    """
    fpn, head = network.backbone.fpn, network.head
    levels = [*(layer for (layer,) in fpn.layer_blocks), fpn.extra_blocks.p6, fpn.extra_blocks.p7]
    means = {head.classification_head.cls_logits: class_logit, head.regression_head.bbox_reg: box_distance}
    outputs = {layer: mean for layer, mean in means.items() if mean is not None}
    calibrate(network, image, dict.fromkeys([*levels, *outputs], 1.0))
    for layer, mean in outputs.items():
        layer.bias += mean


class AllReached(Exception):
    """Ends a forward pass when nothing of it is needed any more."""


def calibrate(network: nn.Module, image: Tensor, deviations: dict[nn.Module, float], *, scale: float = 1.0) -> None:
    """Standardise frozen BatchNorms, the ResNet's features (to `scale`) and the layers of `deviations`.

    Each is standardised by its inputs or outputs at its first call, in one evaluation of `image`. The evaluation ends
    when the last of them was called. On the meta device there are no values to standardise by.
    """
    if image.is_meta:
        return
    waiting: set[nn.Module] = set()
    hooks = []
    for module in network.modules():
        if isinstance(module, FrozenBatchNorm2d):
            hooks.append(module.register_forward_pre_hook(once(module, take_statistics, waiting)))
        elif isinstance(module, Bottleneck):
            module.bn3.weight.fill_(RESIDUAL_SCALE * scale)
            if module.downsample is not None:
                module.downsample[1].weight.fill_(scale)
    for layer, deviation in deviations.items():
        hooks.append(layer.register_forward_hook(once(layer, standardise(deviation), waiting)))
    with contextlib.suppress(AllReached):
        network.eval()([image])
    for handle in hooks:
        handle.remove()


def once(
    module: nn.Module, hook: Callable[..., Tensor | None], waiting: set[nn.Module]
) -> Callable[..., Tensor | None]:
    """`hook` of `module` at its first call only. `waiting` has the modules whose first call is still to come.

    The last of them raises `AllReached`.
    """
    waiting.add(module)

    def first_call(_: nn.Module, *arguments: Any) -> Tensor | None:
        if module not in waiting:
            return None
        waiting.remove(module)
        result = hook(module, *arguments)
        if not waiting:
            raise AllReached
        return result

    return first_call


def take_statistics(norm: FrozenBatchNorm2d, inputs: tuple[Tensor]) -> None:
    """Make a frozen BatchNorm normalise what it is given, as BatchNorm in training would."""
    variance, mean = torch.var_mean(inputs[0], dim=(0, 2, 3))
    norm.running_mean.copy_(mean)
    norm.running_var.copy_(variance)


def standardise(deviation: float) -> Callable[..., Tensor]:
    """A hook that scales a layer so that each channel (dim 1) of its outputs has mean 0 and this deviation."""

    def hook(layer: nn.Conv2d | nn.Linear, _: tuple[Tensor], outputs: Tensor) -> Tensor:
        variance, mean = torch.var_mean(outputs, dim=[dim for dim in range(outputs.ndim) if dim != 1], keepdim=True)
        factor = deviation * variance.rsqrt()
        assert layer.bias is not None
        layer.weight.mul_(factor.view(-1, *[1] * (layer.weight.ndim - 1)))
        layer.bias.sub_(mean.flatten()).mul_(factor.flatten())
        return (outputs - mean) * factor

    return hook
