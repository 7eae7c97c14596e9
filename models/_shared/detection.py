"""What detectors of torchvision's parts share here: ResNets with frozen normalisation, anchors, inputs and outputs.

Shape letters: N objects of an image, M side of a mask, H and W of the image.
"""

from __future__ import annotations

from typing import Any

import torch
import torchvision
from torch import Tensor, nn
from torch.nn import functional as F
from torchvision.models.detection.anchor_utils import AnchorGenerator
from torchvision.models.detection.image_list import ImageList
from torchvision.models.resnet import ResNet
from torchvision.ops import FrozenBatchNorm2d


def detectron_resnet(depth: int, *, freezes_stem: bool = True, dilated: bool = False) -> ResNet:
    """A ResNet (He et al., 2015, arXiv:1512.03385) as Detectron2 has it.

    BatchNorm is frozen everywhere (buffers, no parameters), and a stage's stride is in its first 1 x 1 convolution.
    `freezes_stem` freezes the stem and the first stage; `dilated` gives the last stage stride 1 and dilation 2.
    """
    network = getattr(torchvision.models, f"resnet{depth}")(
        norm_layer=FrozenBatchNorm2d, replace_stride_with_dilation=(False, False, dilated)
    )
    for stage in (network.layer2, network.layer3, network.layer4):
        stage[0].conv1.stride, stage[0].conv2.stride = stage[0].conv2.stride, stage[0].conv1.stride
    if dilated:  # torchvision dilates all blocks but the first
        network.layer4[0].conv2.dilation = network.layer4[0].conv2.padding = (2, 2)
    if freezes_stem:
        for parameter in (*network.conv1.parameters(), *network.layer1.parameters()):
            parameter.requires_grad = False
    return network


class Anchors(AnchorGenerator):  # type: ignore[misc]
    """Anchors of at least fp32 under every precision: in 16 bits, coordinates would be up to 4 pixels off."""

    def set_cell_anchors(self, dtype: torch.dtype, device: torch.device) -> None:
        super().set_cell_anchors(torch.promote_types(dtype, torch.float32), device)


class PreciseDetections:
    """Before torchvision's RetinaNet or FCOS among the bases: detections are selected in the anchors' precision.

    (torchvision's `nms` has no 16-bit kernel on the CPU, and no bf16 kernel anywhere.)
    """

    def postprocess_detections(self, head_outputs: dict[str, list[Tensor]], anchors: Any, image_shapes: Any) -> Any:
        dtype = anchors[0][0].dtype
        precise = {name: [level.to(dtype) for level in levels] for name, levels in head_outputs.items()}
        return super().postprocess_detections(precise, anchors, image_shapes)  # type: ignore[misc]


class FixedSize(nn.Module):
    """Images of one size, (3, H, W) in [0, 1], normalised and stacked; at the end, masks of the images' size.

    It takes the place of torchvision's `GeneralizedRCNNTransform`, which resizes even where the size is right.
    """

    mean: Tensor
    deviation: Tensor

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("mean", torch.tensor([0.485, 0.456, 0.406]).view(3, 1, 1))  # ImageNet's
        self.register_buffer("deviation", torch.tensor([0.229, 0.224, 0.225]).view(3, 1, 1))

    def forward(self, images: list[Tensor], targets: Any = None) -> tuple[ImageList, Any]:
        sizes = [(image.shape[1], image.shape[2]) for image in images]
        return ImageList((torch.stack(images) - self.mean) / self.deviation, sizes), targets

    def postprocess(
        self, results: list[dict[str, Tensor]], sizes: list[tuple[int, int]], _: object
    ) -> list[dict[str, Tensor]]:
        for result, size in zip(results, sizes, strict=False):  # in training there are no results
            if "masks" in result:
                result["masks"] = paste_masks(result["masks"], result["boxes"], *size)
        return results


def paste_masks(masks: Tensor, boxes: Tensor, height: int, width: int) -> Tensor:
    """Probabilities (N, 1, M, M) inside boxes (N, 4) to binary masks (N, H, W), all pixels of all masks at once."""
    x1, y1, x2, y2 = boxes[:, :, None].unbind(1)  # (N, 1)
    x = (torch.arange(width, device=boxes.device) + 0.5 - x1) / (x2 - x1) * 2 - 1  # (N, W), the box is [-1, 1]
    y = (torch.arange(height, device=boxes.device) + 0.5 - y1) / (y2 - y1) * 2 - 1  # (N, H)
    x, y = x[:, None, :].expand(-1, height, -1), y[:, :, None].expand(-1, -1, width)
    grid = torch.stack((x, y), dim=3)  # (N, H, W, 2)
    return F.grid_sample(masks.to(grid.dtype), grid, align_corners=False)[:, 0] >= 0.5
