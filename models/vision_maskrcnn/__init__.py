"""Mask R-CNN on ResNet-50-FPN (He et al., 2017, arXiv:1703.06870): boxes, classes and masks of objects at 800x1216.

BatchNorm, stem and first stage are frozen, as with pretrained weights. `initialise_rcnn` gives random weights a
realistic load. Training samples 512 proposals per image and stays finite; about 50 of them, after some 25 steps the
full 128, match an object and get masks. Evaluation has 1000 proposals, of which 800 to 1000 boxes in 90 classes enter
NMS, and keeps 100 detections with masks per image.
"""

from torch import Tensor, nn
from torchvision.models.detection import MaskRCNN
from torchvision.models.detection.backbone_utils import resnet_fpn_backbone
from torchvision.ops import FrozenBatchNorm2d

from torchzoo.case import Mode
from torchzoo.networks.detection_init import initialise_rcnn
from torchzoo.tasks import Detector


class Model(Detector):
    with_masks = True

    def initialise(self, image: Tensor) -> None:
        initialise_rcnn(self.network, image, detecting=self.mode is Mode.EVAL)

    def build_network(self) -> nn.Module:
        backbone = resnet_fpn_backbone(
            backbone_name="resnet50", weights=None, norm_layer=FrozenBatchNorm2d, trainable_layers=3
        )
        return MaskRCNN(backbone, num_classes=self.num_classes)
