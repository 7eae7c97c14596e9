"""FCOS (Tian et al., 2019, arXiv:1904.01355) on ResNet-50-FPN, as Detectron2 builds it: boxes without anchors.

Detectron2 (Wu et al., 2019, https://github.com/facebookresearch/detectron2) is not on PyPI; torchvision's FCOS has the
same heads, losses and thresholds, and a frozen ResNet whose stride is in the 1 x 1 convolutions makes it the same
network. Random weights are scaled (`models/_shared/detection_init.py`) so that evaluation keeps 100 detections.

Stem and first stage are frozen, and SGD has momentum 0.9 and a weight decay of 1e-4 for all but normalisations, as in
Detectron2's `configs/COCO-Detection/fcos_R_50_FPN_1x.py`. The learning rate is 1e-3, for a single image. (TorchBench
refuses to train it.)
"""

import torch
from torch import Tensor, nn
from torchvision.models.detection import FCOS
from torchvision.models.detection.backbone_utils import BackboneWithFPN
from torchvision.ops.feature_pyramid_network import LastLevelP6P7

from torchzoo.case import Mode
from torchzoo.model.tasks import Detector

from .._shared.detection import Anchors, FixedSize, PreciseDetections, detectron_resnet
from .._shared.detection_init import initialise_dense


class PreciseFCOS(PreciseDetections, FCOS):  # type: ignore[misc]
    pass


class Model(Detector):
    num_classes = 80  # numbered from 0; the targets use 1 to 79
    learning_rate = 1e-3

    def initialise(self, image: Tensor) -> None:
        detecting = self.mode is Mode.EVAL
        initialise_dense(
            self.network,
            image,
            class_logit=-5.6 if detecting else None,
            box_distance=4.0 if detecting else None,
        )

    def build_network(self) -> nn.Module:
        stages = {"layer2": "3", "layer3": "4", "layer4": "5"}
        backbone = BackboneWithFPN(detectron_resnet(50), stages, [512, 1024, 2048], 256, LastLevelP6P7(256, 256))
        points = Anchors(((8,), (16,), (32,), (64,), (128,)), ((1.0,),) * 5)  # as squares of the level's stride
        network = PreciseFCOS(backbone, self.num_classes, anchor_generator=points)
        network.transform = FixedSize()
        return network

    def build_optimizer(self) -> torch.optim.Optimizer:
        groups: dict[bool, list[nn.Parameter]] = {True: [], False: []}
        for module in self.network.modules():
            own = [parameter for parameter in module.parameters(recurse=False) if parameter.requires_grad]
            groups[isinstance(module, nn.GroupNorm)] += own
        norms = {"params": groups[True], "weight_decay": 0.0}
        others = {"params": groups[False], "weight_decay": self.weight_decay}
        return torch.optim.SGD([others, norms], lr=self.learning_rate, momentum=0.9)
