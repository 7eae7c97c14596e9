"""Detectors of the zoo, made small enough for a CPU: small images, narrow ResNets, few regions, small heads."""

from __future__ import annotations

import contextlib
import functools
import sys
from collections.abc import Iterator
from typing import Any
from unittest import mock

import torch
import torchvision
from torch import Tensor, nn
from torchvision.models.resnet import Bottleneck, ResNet

from torchzoo.case import Mode
from torchzoo.model import Model
from torchzoo.model.tasks import Detector
from torchzoo.zoo.catalog import load_model_class
from torchzoo.zoo.spec import ModelSpec

HEIGHT, WIDTH = 64, 160


def on_small_images(spec: ModelSpec, mode: Mode, batch_size: int = 1, *, regions: int | None = None) -> Detector:
    """The folder's own model, with images of 64 x 160.

    If `regions` is given, the heads have so many regions per image instead of 512 or 1000, and detect no more.
    """
    base: Any = load_model_class(spec)

    class Small(base):  # type: ignore[misc]
        image_height = HEIGHT
        image_width = WIDTH

        def build_network(self) -> nn.Module:
            network = super().build_network()
            if hasattr(network.transform, "min_size"):  # torchvision's, which resizes
                network.transform.min_size, network.transform.max_size = (HEIGHT,), WIDTH
            if regions is not None:
                network.roi_heads.fg_bg_sampler.batch_size_per_image = regions
                network.roi_heads.detections_per_img = regions
                network.rpn._post_nms_top_n["testing"] = regions
            return network

    return Small(mode, "cpu", batch_size)


@contextlib.contextmanager
def narrow_resnets() -> Iterator[None]:
    """ResNets of one block a stage, 1/16 as wide inside the block. Their feature maps have as many channels as ever."""

    def narrow(**options: Any) -> ResNet:
        assert options.pop("weights", None) is None
        return ResNet(Bottleneck, [1, 1, 1, 1], width_per_group=4, **options)

    with (
        mock.patch.object(torchvision.models, "resnet50", narrow),  # where Detectron2's take it from
        mock.patch.multiple(torchvision.models.resnet, resnet50=narrow, resnext50_32x4d=narrow),
    ):
        yield


def small_efficientdet(spec: ModelSpec, mode: Mode) -> Model:
    """EfficientDet's folder, with two images of 128 x 128: the top level is one place."""
    base: Any = load_model_class(spec)
    folder: Any = sys.modules[base.__module__]

    class Small(base):  # type: ignore[misc]
        image_size = 128

    create = functools.partial(folder.create_model, image_size=(128, 128))
    with mock.patch.object(folder, "create_model", create):
        model: Model = Small(mode, "cpu", 2)
    return model


def with_small_heads(model: Detector) -> Detector:
    """All regions and what chooses them as it is, with hardly any work on them."""
    heads: Any = model.network.roi_heads
    if isinstance(heads.box_head, nn.Sequential):  # the last ResNet stage, for boxes and masks
        heads.box_roi_pool, heads.box_head = SmallPool(14), SmallHead(1024, 2048, side=7)
        heads.mask_roi_pool, heads.mask_head = heads.box_roi_pool, heads.box_head
    else:
        heads.box_roi_pool = SmallPool(7)
        heads.box_head = SmallHead(heads.box_head.fc6.in_features // 49, 1024, side=1)
        if heads.has_mask():
            heads.mask_roi_pool, heads.mask_head = SmallPool(14), SmallHead(256, 256, side=14)
    if heads.has_mask():
        logits = heads.mask_predictor.mask_fcn_logits
        side = 2 * heads.mask_head.side
        heads.mask_predictor = SmallHead(heads.mask_head.project.out_features, logits.out_channels, side=side)
    model.optimizer = model.build_optimizer()
    return model


class SmallPool(nn.Module):
    """Gives regions of the right number and size, all of them the mean of the first feature map."""

    def __init__(self, side: int) -> None:
        super().__init__()
        self.side = side
        self.strides = (4, 8, 16, 32)  # what Detectron2's heads read of a pool

    def forward(self, maps: Any, boxes: list[Tensor], *_: Any) -> Tensor:
        first = next(iter(maps.values())) if isinstance(maps, dict) else maps[0]
        means = first.mean(dim=(2, 3)).repeat_interleave(torch.tensor([len(of_image) for of_image in boxes]), dim=0)
        return means[:, :, None, None].expand(-1, -1, self.side, self.side)


class SmallHead(nn.Module):
    """Takes and gives what a head of regions does, by one product with a matrix."""

    def __init__(self, in_channels: int, out_channels: int, *, side: int) -> None:
        super().__init__()
        self.project = nn.Linear(in_channels, out_channels)
        self.side = side

    def forward(self, regions: Tensor) -> Tensor:
        outputs = self.project(regions.mean(dim=(2, 3)))
        return outputs if self.side == 1 else outputs[:, :, None, None].expand(-1, -1, self.side, self.side)
