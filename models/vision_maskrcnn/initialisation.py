"""Random weights that work like trained ones: layers are scaled by what one forward pass shows of their outputs.

(Data-dependent initialisation, after Krähenbühl et al., 2015, arXiv:1511.06856.)
"""

import torch
from torch import Tensor, nn
from torchvision.models.detection import MaskRCNN
from torchvision.models.resnet import Bottleneck
from torchvision.ops import FrozenBatchNorm2d

# Coarse pyramid levels have fewer anchors; louder ones get their share of the best 1000, objects from 30 to 600 pixels.
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
def initialise(network: MaskRCNN, image: Tensor, *, detecting: bool) -> None:
    """Scale backbone and pyramid by their outputs on `image`, and the box classifier if `detecting` (not training)."""
    scale = 1.0 if detecting else TRAINING_SCALE
    hooks = []
    for module in network.modules():
        if isinstance(module, FrozenBatchNorm2d):
            hooks.append(module.register_forward_pre_hook(take_statistics))
        elif isinstance(module, Bottleneck):
            module.bn3.weight.fill_(RESIDUAL_SCALE * scale)
            if module.downsample is not None:
                module.downsample[1].weight.fill_(scale)
    for (layer,), level_scale in zip(network.backbone.fpn.layer_blocks, PYRAMID_SCALES, strict=True):
        hooks.append(standardise(layer, level_scale * scale))
    classifier = network.roi_heads.box_predictor.cls_score
    if detecting:
        hooks.append(standardise(classifier, LOGIT_SCALE))
    network.eval()([image])
    if detecting:
        classifier.bias[0] += BACKGROUND_LOGIT
    for hook in hooks:
        hook.remove()


def take_statistics(norm: FrozenBatchNorm2d, inputs: tuple[Tensor]) -> None:
    """Make a frozen BatchNorm normalise what it is given, as BatchNorm in training would."""
    variance, mean = torch.var_mean(inputs[0], dim=(0, 2, 3))
    norm.running_mean.copy_(mean)
    norm.running_var.copy_(variance)


def standardise(layer: nn.Conv2d | nn.Linear, scale: float) -> torch.utils.hooks.RemovableHandle:
    """When `layer` is called, scale it so that each channel (dim 1) of its outputs has mean 0 and deviation `scale`."""

    def hook(_: nn.Module, __: tuple[Tensor], outputs: Tensor) -> Tensor:
        variance, mean = torch.var_mean(outputs, dim=[dim for dim in range(outputs.ndim) if dim != 1], keepdim=True)
        factor = scale * variance.rsqrt()
        assert layer.bias is not None
        layer.weight.mul_(factor.view(-1, *[1] * (layer.weight.ndim - 1)))
        layer.bias.sub_(mean.flatten()).mul_(factor.flatten())
        return (outputs - mean) * factor

    return layer.register_forward_hook(hook)
