"""RetinaNet (Lin et al., 2017, arXiv:1708.02002) on ResNeXt-50-FPN, as MLPerf trains it: 264 classes at 800 x 800.

The configuration is that of https://github.com/mlcommons/training (single_stage_detector): torchvision's RetinaNet,
ResNeXt-50 32x4d with frozen BatchNorm, stem and first stage, P6 and P7 from P5, Adam. Random weights are scaled
(`models/_shared/detection_init.py`) so that evaluation keeps 300 detections, its limit.

It has 37,060,652 parameters; the table in MLPerf's README.md (mlcommons/training) says 37M. By our count an eval step
of one image takes 402 GFLOP and a train step of one 1,161; the default of two takes twice that, 2,322. By hand: the
ResNeXt 108 (its formula gives 4.23 GMAC for 224 x 224, as torchvision's table), the pyramid 20, the heads 274 for
13,343 positions; 402. Training takes three times that, without the gradients of the frozen layers and of what enters
the second stage: 1,161.
"""

import torch
from torch import Tensor, nn
from torchvision.models.detection import RetinaNet
from torchvision.models.detection.backbone_utils import resnet_fpn_backbone
from torchvision.ops.feature_pyramid_network import LastLevelP6P7

from torchzoo.case import Mode
from torchzoo.model.tasks import Detector

from .._shared.detection import Anchors, FixedSize, PreciseDetections
from .._shared.detection_init import initialise_dense


class PreciseRetinaNet(PreciseDetections, RetinaNet):  # type: ignore[misc]
    pass


class Model(Detector):
    image_height = 800
    image_width = 800
    num_classes = 264  # numbered from 0; the targets use 1 to 263

    def initialise(self, image: Tensor) -> None:
        initialise_dense(self.network, image, class_logit=-6.9 if self.mode is Mode.EVAL else None)

    def build_network(self) -> nn.Module:
        backbone = resnet_fpn_backbone(
            backbone_name="resnext50_32x4d",
            weights=None,
            trainable_layers=3,
            returned_layers=[2, 3, 4],
            extra_blocks=LastLevelP6P7(256, 256),
        )
        sizes = tuple((size, int(size * 2 ** (1 / 3)), int(size * 2 ** (2 / 3))) for size in (32, 64, 128, 256, 512))
        network = PreciseRetinaNet(backbone, self.num_classes, anchor_generator=Anchors(sizes, ((0.5, 1.0, 2.0),) * 5))
        network.transform = FixedSize()
        return network

    def build_optimizer(self) -> torch.optim.Optimizer:
        return torch.optim.Adam(self.trainable(), lr=1e-4)
