"""Mask R-CNN on ResNet-50-FPN (He et al., 2017, arXiv:1703.06870): boxes, classes and masks of objects at 800x1216.

torchvision's, with SGD as in its references/detection/train.py and in TorchBench: learning rate 0.02, momentum 0.9,
weight decay 1e-4. BatchNorm, stem and first stage are frozen, as with pretrained weights.

`initialise_rcnn` gives random weights a realistic load. Training samples 512 of 2000 proposals per image, of which 128
are objects and get masks (`models/_shared/regions.py`), and stays finite. Evaluation has 1000 proposals, of which
800 to 1000 boxes in 90 classes enter NMS, and keeps 100 detections with masks per image.
"""

from torch import Tensor, nn
from torchvision.models.detection import MaskRCNN
from torchvision.models.detection.backbone_utils import resnet_fpn_backbone
from torchvision.ops import FrozenBatchNorm2d

from torchzoo.case import Mode
from torchzoo.model.tasks import Detector

from .._shared.detection_init import initialise_rcnn
from .._shared.rcnn import pyramid_proposals
from .._shared.regions import MultiScaleRoIAlign, RoIHeads

PYRAMID_LEVELS = ["0", "1", "2", "3"]


class Model(Detector):
    with_masks = True

    def initialise(self, image: Tensor) -> None:
        initialise_rcnn(self.network, image, detecting=self.mode is Mode.EVAL)

    def build_network(self) -> nn.Module:
        backbone = resnet_fpn_backbone(
            backbone_name="resnet50", weights=None, norm_layer=FrozenBatchNorm2d, trainable_layers=3
        )
        network = MaskRCNN(backbone, num_classes=self.num_classes)
        network.rpn = pyramid_proposals(after_nms={"training": 2000, "testing": 1000})
        parts = network.roi_heads
        heads = RoIHeads(MultiScaleRoIAlign(PYRAMID_LEVELS, 7, sampling_ratio=2), parts.box_head, parts.box_predictor)
        heads.mask_roi_pool = MultiScaleRoIAlign(PYRAMID_LEVELS, 14, sampling_ratio=2)
        heads.mask_head, heads.mask_predictor = parts.mask_head, parts.mask_predictor
        network.roi_heads = heads
        return network
