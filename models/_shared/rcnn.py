"""Faster R-CNN (Ren et al., 2015, arXiv:1506.01497), Mask R-CNN (He et al., 2017, arXiv:1703.06870) as in Detectron2.

Detectron2 (Wu et al., 2019, https://github.com/facebookresearch/detectron2) is not on PyPI; this puts its baseline
models together from torchvision's parts, with their exact parameter counts and the same work:
- heads: 80 classes, boxes and masks for each class but the background; RoIAlign aligned to pixel centres, with as many
  samples as a region needs; masks pasted at full size, all at once;
- proposals: their numbers before and after NMS in training and evaluation;
- training: 512 regions per image, of which 128 are foreground, in every step (`models/_shared/regions.py`);
- C4 computes the last ResNet stage once for boxes and masks in training, a second time for the masks of detections.
It differs where torchvision's losses do: smooth L1 (beta 1/9) for boxes instead of L1. Background is class 0, as there.

Shape letters: B images, R regions of all images, C channels, K classes without background, M side of a mask.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torchvision.models._utils import IntermediateLayerGetter
from torchvision.models.detection import roi_heads
from torchvision.models.detection.backbone_utils import BackboneWithFPN
from torchvision.models.detection.faster_rcnn import TwoMLPHead
from torchvision.models.detection.generalized_rcnn import GeneralizedRCNN
from torchvision.models.detection.mask_rcnn import MaskRCNNHeads, MaskRCNNPredictor
from torchvision.ops import roi_align

from torchzoo.case import Mode
from torchzoo.model.tasks import Detector

from .detection import Anchors, FixedSize, detectron_resnet
from .detection_init import initialise_rcnn
from .regions import RegionProposals, RoIHeads, roi_align_dtype

Features = Literal["fpn", "c4", "dc5"]
ANCHOR_SIZES = (32, 64, 128, 256, 512)  # pixels


class DetectronRCNN(Detector):
    """One of Detectron2's baselines, trained as its default configuration and TorchBench do it.

    That is SGD at a learning rate of 1e-3 with momentum 0.9 and weight decay 1e-4 (`SOLVER`; no normalisation has
    parameters), the stem and the first stage frozen (`MODEL.BACKBONE.FREEZE_AT: 2`).
    """

    depth: ClassVar[int] = 50
    features: ClassVar[Features] = "fpn"
    freezes_stem: ClassVar[bool] = True
    learning_rate = 1e-3
    num_classes = 81  # background included

    def initialise(self, image: Tensor) -> None:
        initialise_rcnn(self.network, image, detecting=self.mode is Mode.EVAL)

    def build_network(self) -> nn.Module:
        config = Config(
            depth=self.depth,
            freezes_stem=self.freezes_stem,
            num_classes=self.num_classes - 1,
            with_masks=self.with_masks,
        )
        network: nn.Module = {"fpn": fpn_rcnn, "c4": c4_rcnn, "dc5": dc5_rcnn}[self.features](config)
        return network


@dataclass(frozen=True, kw_only=True)
class Config:
    depth: int = 50  # of the ResNet
    freezes_stem: bool = True  # and the first stage
    num_classes: int = 80  # background left out
    with_masks: bool = False


def fpn_rcnn(config: Config) -> GeneralizedRCNN:
    """Five pyramid levels (Lin et al., 2016, arXiv:1612.03144) of C 256, an anchor size each; two-layer head."""
    resnet = detectron_resnet(config.depth, freezes_stem=config.freezes_stem)
    stages = {f"layer{stage}": str(stage) for stage in (1, 2, 3, 4)}
    backbone = BackboneWithFPN(resnet, stages, [256, 512, 1024, 2048], 256)
    strides = (4, 8, 16, 32)
    heads = DetectronHeads(RoIPooler(7, strides), TwoMLPHead(256 * 7 * 7, 1024), BoxPredictor(1024, config.num_classes))
    if config.with_masks:
        heads.mask_roi_pool = RoIPooler(14, strides)
        heads.mask_head = MaskRCNNHeads(256, (256, 256, 256, 256), dilation=1)
        heads.mask_predictor = MaskRCNNPredictor(256, 256, config.num_classes)
    proposals = pyramid_proposals(after_nms={"training": 1000, "testing": 1000})
    return GeneralizedRCNN(backbone, proposals, heads, FixedSize())


def c4_rcnn(config: Config) -> GeneralizedRCNN:
    """Proposals and regions from the fourth ResNet stage (stride 16, C 1024); the fifth is the head of every region."""
    resnet = detectron_resnet(config.depth, freezes_stem=config.freezes_stem)
    pooler = RoIPooler(14, (16,))
    heads = DetectronHeads(pooler, resnet.layer4, BoxPredictor(2048, config.num_classes))
    if config.with_masks:
        heads.mask_roi_pool, heads.mask_head = pooler, resnet.layer4
        heads.mask_predictor = MaskRCNNPredictor(2048, 256, config.num_classes)
    backbone = IntermediateLayerGetter(resnet, {"layer3": "4"})
    return GeneralizedRCNN(backbone, single_level_proposals(1024), heads, FixedSize())


def dc5_rcnn(config: Config) -> GeneralizedRCNN:
    """Proposals and regions from the fifth ResNet stage, dilated (stride 16, C 2048); two-layer head."""
    assert not config.with_masks
    resnet = detectron_resnet(config.depth, freezes_stem=config.freezes_stem, dilated=True)
    backbone = IntermediateLayerGetter(resnet, {"layer4": "5"})
    heads = DetectronHeads(RoIPooler(7, (16,)), TwoMLPHead(2048 * 7 * 7, 1024), BoxPredictor(1024, config.num_classes))
    return GeneralizedRCNN(backbone, single_level_proposals(2048), heads, FixedSize())


def pyramid_proposals(*, after_nms: dict[str, int]) -> RegionProposals:
    """Three anchors at each place of five levels of C 256, of one size on each level."""
    anchors = Anchors(tuple((size,) for size in ANCHOR_SIZES), ((0.5, 1.0, 2.0),) * 5)
    return RegionProposals(256, anchors, {"training": 2000, "testing": 1000}, after_nms)


def single_level_proposals(channels: int) -> RegionProposals:
    """All 15 anchors at each place of one map."""
    anchors = Anchors((ANCHOR_SIZES,), ((0.5, 1.0, 2.0),))
    before_nms, after_nms = {"training": 12000, "testing": 6000}, {"training": 2000, "testing": 1000}
    return RegionProposals(channels, anchors, before_nms, after_nms)


class RoIPooler(nn.Module):
    """Regions (x1, y1, x2, y2) cut out of the feature map whose stride suits their size, to (R, C, `size`, `size`)."""

    def __init__(self, size: int, strides: tuple[int, ...]) -> None:
        super().__init__()
        self.size = size
        self.strides = strides

    def forward(self, maps: list[Tensor], boxes: list[Tensor]) -> Tensor:
        regions = torch.cat([F.pad(of_image, (1, 0), value=image) for image, of_image in enumerate(boxes)])  # (R, 5)
        if len(self.strides) == 1:
            return self.align(maps[0], regions, self.strides[0])
        pooled = maps[0].new_zeros(len(regions), maps[0].shape[1], self.size, self.size)
        levels = self.levels(regions)
        for level, (features, stride) in enumerate(zip(maps, self.strides, strict=True)):
            here = torch.where(levels == level)[0]
            pooled[here] = self.align(features, regions[here], stride).to(pooled.dtype)
        return pooled

    def levels(self, regions: Tensor) -> Tensor:
        """The level of each region (R,): a square of 224 pixels is cut out at stride 16 (Lin et al., equation 1)."""
        _, x1, y1, x2, y2 = regions.unbind(1)
        side = torch.sqrt((x2 - x1) * (y2 - y1))
        return torch.floor(2 + torch.log2(side / 224 + 1e-8)).clamp(0, len(self.strides) - 1)

    def align(self, features: Tensor, regions: Tensor, stride: int) -> Tensor:
        """RoIAlign with `ceil(region size / size)` samples in each direction of a bin."""
        dtype = roi_align_dtype(features.dtype)
        aligned: Tensor = roi_align(features.to(dtype), regions, self.size, 1 / stride, -1, aligned=True)
        return aligned.to(features.dtype)


class BoxPredictor(nn.Module):
    """Features (R, C) or (R, C, 7, 7), averaged, to logits (R, 1 + K) and box offsets (R, 4 + 4 K).

    The background, class 0, has a box of zeros that nothing reads, so that logits and boxes have the same classes.
    """

    def __init__(self, channels: int, num_classes: int) -> None:
        super().__init__()
        self.cls_score = nn.Linear(channels, 1 + num_classes)
        self.bbox_pred = nn.Linear(channels, 4 * num_classes)
        for layer, deviation in ((self.cls_score, 0.01), (self.bbox_pred, 0.001)):
            nn.init.normal_(layer.weight, std=deviation)
            nn.init.zeros_(layer.bias)

    def forward(self, features: Tensor) -> tuple[Tensor, Tensor]:
        if features.ndim == 4:
            features = features.mean(dim=(2, 3))
        return self.cls_score(features), F.pad(self.bbox_pred(features), (4, 0))


class DetectronHeads(RoIHeads):
    """Detectron2's box and mask heads.

    If `mask_head` is the same module as `box_head`, training uses its outputs for the boxes again.
    """

    def forward(
        self, features: dict[str, Tensor], proposals: list[Tensor], image_shapes: Any, targets: Any = None
    ) -> tuple[list[dict[str, Tensor]], dict[str, Tensor]]:
        maps = list(features.values())[: len(self.box_roi_pool.strides)]  # the fifth level of FPN is for proposals only
        if self.training:
            return [], self.losses(maps, proposals, targets)
        return self.detect(maps, proposals, image_shapes), {}

    def losses(self, maps: list[Tensor], proposals: list[Tensor], targets: Any) -> dict[str, Tensor]:
        proposals, matches, labels, offsets = self.select_training_samples(proposals, targets)
        box_features = self.box_head(self.box_roi_pool(maps, proposals))
        class_logits, box_offsets = self.box_predictor(box_features)
        class_loss, box_loss = roi_heads.fastrcnn_loss(class_logits, box_offsets, labels, offsets)
        losses = {"loss_classifier": class_loss, "loss_box_reg": box_loss}
        if self.has_mask():
            objects = [torch.where(of_image > 0)[0] for of_image in labels]
            boxes = [of_image[here] for of_image, here in zip(proposals, objects, strict=True)]
            if self.mask_head is self.box_head:
                mask_features = box_features[torch.cat(labels) > 0]
            else:
                mask_features = self.mask_head(self.mask_roi_pool(maps, boxes))
            losses["loss_mask"] = roi_heads.maskrcnn_loss(
                self.mask_predictor(mask_features),
                boxes,
                [target["masks"] for target in targets],
                [target["labels"] - 1 for target in targets],  # there is no mask of the background
                [of_image[here] for of_image, here in zip(matches, objects, strict=True)],
            )
        return losses

    def detect(self, maps: list[Tensor], proposals: list[Tensor], image_shapes: Any) -> list[dict[str, Tensor]]:
        class_logits, box_offsets = self.box_predictor(self.box_head(self.box_roi_pool(maps, proposals)))
        boxes, scores, labels = self.postprocess_detections(class_logits, box_offsets, proposals, image_shapes)
        results = [
            dict(zip(("boxes", "scores", "labels"), of_image, strict=True))
            for of_image in zip(boxes, scores, labels, strict=True)
        ]
        if self.has_mask():
            mask_logits = self.mask_predictor(self.mask_head(self.mask_roi_pool(maps, boxes)))
            masks = roi_heads.maskrcnn_inference(mask_logits, [of_image - 1 for of_image in labels])
            for result, of_image in zip(results, masks, strict=True):
                result["masks"] = of_image  # (N, 1, M, M), pasted by `FixedSize`
        return results
