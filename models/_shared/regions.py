"""Region proposals and region heads of R-CNNs (Ren et al., 2015, arXiv:1506.01497): torchvision's, changed in two ways.

**Every training step has the same number of regions.** The heads are trained on 512 proposals per image. At most a
quarter of them, 128, are foreground: they overlap an object by half (IoU). How many there are depends on what the
proposals have learnt. With random weights they are a few dozen, and other ones in each step, so that no two steps would
be the same work. Here the last 128 of an image's 1000 or 2000 proposals in training lie around the objects, as those of
a trained network do: they are copies of the ground truth with moved sides. Matching and sampling are torchvision's, the
same as Detectron2's. They find 128 foreground regions, whatever has been learnt. The other 384 are background: for that
to fail, more than 488 of the other 872 or 1872 proposals would have to overlap an object by half. Should suppression
leave fewer proposals than usual, small boxes of background fill up. (The proposals' own loss samples 256 anchors per
image. How many of them are foreground depends on anchors and objects alone, so it is the same number in each step.)

**Boxes are in at least fp32 under every precision**, as are the scores that select them: 16-bit coordinates would be
off by up to 4 pixels, and torchvision's `nms` has no 16-bit kernel on the CPU and no bf16 kernel anywhere. RoIAlign,
which cuts boxes out of feature maps, computes in fp32 too where the maps have 16 bits, as it does under autocast.

Shape letters: N boxes of an image, H and W of the image. Boxes are x1, y1, x2, y2, in pixels.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from torchvision import ops
from torchvision.models.detection import _utils as detection_utils
from torchvision.models.detection import roi_heads
from torchvision.models.detection.image_list import ImageList
from torchvision.models.detection.rpn import RegionProposalNetwork, RPNHead

from .detection import Anchors

REGIONS = 512  # per image, that the heads are trained on
FOREGROUND = 128  # of them
# How far the sides of a copy are moved, in widths or heights of the object. A copy that is smaller by two such shifts
# in both directions overlaps the object least: 0.75 x 0.75 = 0.56.
LARGEST_SHIFT = 1 / 8
# Background boxes have 1/50 of the image's width and height. Objects have 1/20 or more (`SyntheticData.boxes`), so that
# their IoU is below 0.2, wherever they are. In the image there is place for 2500.
BACKGROUND_ROWS = 50


class BoxCoder(detection_utils.BoxCoder):  # type: ignore[misc]
    """Decodes in the precision of the reference boxes, also where the network's outputs have another one."""

    def decode(self, rel_codes: Tensor, boxes: list[Tensor]) -> Tensor:
        decoded: Tensor = super().decode(rel_codes.to(boxes[0].dtype), boxes)
        return decoded


class RegionProposals(RegionProposalNetwork):  # type: ignore[misc]
    """The region proposal network. In training each image has `after_nms["training"]` proposals, 128 around objects."""

    shifts: Tensor

    def __init__(self, channels: int, anchors: Anchors, before_nms: dict[str, int], after_nms: dict[str, int]) -> None:
        super().__init__(
            anchors,
            RPNHead(channels, anchors.num_anchors_per_location()[0]),
            fg_iou_thresh=0.7,
            bg_iou_thresh=0.3,
            batch_size_per_image=256,
            positive_fraction=0.5,
            pre_nms_top_n=before_nms,
            post_nms_top_n=after_nms,
            nms_thresh=0.7,
        )
        self.box_coder: BoxCoder = BoxCoder((1.0, 1.0, 1.0, 1.0))
        shifts = torch.empty(FOREGROUND, 4).uniform_(-LARGEST_SHIFT, LARGEST_SHIFT)
        self.register_buffer("shifts", shifts, persistent=False)

    def forward(
        self, images: ImageList, features: dict[str, Tensor], targets: Any = None
    ) -> tuple[list[Tensor], dict[str, Tensor]]:
        proposals, losses = super().forward(images, features, targets)
        if self.training:
            objects = [target["boxes"] for target in targets]
            proposals = [
                self.with_objects(*of_image) for of_image in zip(proposals, objects, images.image_sizes, strict=True)
            ]
        return proposals, losses

    def with_objects(self, proposals: Tensor, objects: Tensor, size: tuple[int, int]) -> Tensor:
        """The best proposals of an image (height, width), and boxes around its objects (N, 4) in place of the last."""
        near = ops.clip_boxes_to_image(moved_copies(objects.to(proposals.dtype), self.shifts), size)
        count = self.post_nms_top_n() - FOREGROUND
        # Without asking how many there are: a compiler would compile again for each answer.
        filled = torch.cat((proposals, background(count, size, near)))[:count]
        return torch.cat((filled, near))

    def filter_proposals(self, proposals: Tensor, objectness: Tensor, *shapes: Any) -> Any:
        return super().filter_proposals(proposals, objectness.to(proposals.dtype), *shapes)


def moved_copies(objects: Tensor, shifts: Tensor) -> Tensor:
    """Copies of boxes (N, 4), of each in turn. `shifts` (R, 4) moves the sides of R copies, in widths or heights."""
    originals = objects[torch.arange(len(shifts), device=objects.device) % len(objects)]
    size = originals[:, 2:] - originals[:, :2]
    return originals + shifts.to(objects.dtype) * torch.cat((size, size), dim=1)


def background(count: int, size: tuple[int, int], like: Tensor) -> Tensor:
    """(count, 4) boxes side by side in an image (height, width), too small to overlap an object by half."""
    number = torch.arange(count, device=like.device)
    height, width = size[0] / BACKGROUND_ROWS, size[1] / BACKGROUND_ROWS
    x, y = number % BACKGROUND_ROWS * width, number // BACKGROUND_ROWS * height
    return torch.stack((x, y, x + width, y + height), dim=1).to(like.dtype)


class RoIHeads(roi_heads.RoIHeads):  # type: ignore[misc]
    """The heads of regions, with the sampling, losses and selection of detections that all of torchvision's have."""

    box_weights = (10.0, 10.0, 5.0, 5.0)

    def __init__(self, box_roi_pool: nn.Module, box_head: nn.Module, box_predictor: nn.Module) -> None:
        super().__init__(
            box_roi_pool,
            box_head,
            box_predictor,
            fg_iou_thresh=0.5,
            bg_iou_thresh=0.5,
            batch_size_per_image=REGIONS,
            positive_fraction=FOREGROUND / REGIONS,
            bbox_reg_weights=self.box_weights,
            score_thresh=0.05,
            nms_thresh=0.5,
            detections_per_img=100,
        )
        self.box_coder: BoxCoder = BoxCoder(self.box_weights)

    def forward(
        self, features: dict[str, Tensor], proposals: list[Tensor], image_shapes: Any, targets: Any = None
    ) -> tuple[list[dict[str, Tensor]], dict[str, Tensor]]:
        if targets is not None:  # torchvision's own heads refuse bf16
            targets = [target | {"boxes": target["boxes"].to(proposals[0].dtype)} for target in targets]
        detections, losses = super().forward(features, proposals, image_shapes, targets)
        return detections, losses

    def postprocess_detections(
        self, class_logits: Tensor, box_regression: Tensor, proposals: list[Tensor], image_shapes: Any
    ) -> Any:
        class_logits = class_logits.to(proposals[0].dtype)
        return super().postprocess_detections(class_logits, box_regression, proposals, image_shapes)


class MultiScaleRoIAlign(ops.MultiScaleRoIAlign):  # type: ignore[misc]
    """torchvision's, for feature maps of every precision."""

    def forward(self, maps: dict[str, Tensor], boxes: list[Tensor], image_shapes: Any) -> Tensor:
        own = next(iter(maps.values())).dtype
        precise = {name: features.to(roi_align_dtype(own)) for name, features in maps.items()}
        aligned: Tensor = super().forward(precise, boxes, image_shapes)
        return aligned.to(own)


def roi_align_dtype(features: torch.dtype) -> torch.dtype:
    """The precision that RoIAlign computes in for features of this one. It is the boxes' precision."""
    return torch.promote_types(features, torch.float32)
