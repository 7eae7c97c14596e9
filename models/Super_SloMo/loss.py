"""Super SloMo's loss: reconstruction, perceptual, warping and smoothness (Jiang et al., 2018, section 3.3).

The published weights are for frames in [0, 255]; frames here are in [0, 1]. Shape letters: B batch, H height, W width.
"""

from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torchvision.models.vgg import cfgs, make_layers

from .network import Interpolation, backward_warp


class Weights(NamedTuple):
    reconstruction: float = 0.8 * 255
    perceptual: float = 0.005
    warping: float = 0.4 * 255
    smoothness: float = 1.0


class PerceptualFeatures(nn.Module):
    """Frames (B, 3, H, W) in [0, 1] to the conv4_3 features (B, 512, H/8, W/8) of VGG-16, which is frozen."""

    mean: Tensor
    deviation: Tensor

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("mean", torch.tensor([0.485, 0.456, 0.406]).view(3, 1, 1))
        self.register_buffer("deviation", torch.tensor([0.229, 0.224, 0.225]).view(3, 1, 1))
        self.layers = make_layers(cfgs["D"], batch_norm=False)[:22]
        self.requires_grad_(requires_grad=False)

    def forward(self, frames: Tensor) -> Tensor:
        features: Tensor = self.layers((frames - self.mean) / self.deviation)
        return features


def interpolation_loss(
    output: Interpolation, frame: Tensor, frame0: Tensor, frame1: Tensor, features: nn.Module
) -> Tensor:
    """The weighted sum, given the true `frame` and those it lies between (B, 3, H, W each)."""
    weights = Weights()
    reconstruction = F.l1_loss(output.frame, frame)
    with torch.no_grad():
        wanted = features(frame)
    perceptual = F.mse_loss(features(output.frame), wanted)
    warps = [
        F.l1_loss(output.warps[0], frame),
        F.l1_loss(output.warps[1], frame),
        F.l1_loss(backward_warp(frame0, output.flow10), frame1),
        F.l1_loss(backward_warp(frame1, output.flow01), frame0),
    ]
    return (
        weights.reconstruction * reconstruction
        + weights.perceptual * perceptual
        + weights.warping * torch.stack(warps).sum()
        + weights.smoothness * (roughness(output.flow01) + roughness(output.flow10))
    )


def roughness(flow: Tensor) -> Tensor:
    """How much a flow (B, 2, H, W) changes from pixel to pixel."""
    return flow.diff(dim=2).abs().mean() + flow.diff(dim=3).abs().mean()
