"""EfficientDet-D1 (Tan, Pang and Le, 2019, arXiv:1911.09070) detecting objects of 90 classes at 640 x 640.

Network, loss and detection are effdet's (tf_efficientdet_d1). A train step labels the anchors with the boxes of each
image, seven as in COCO (`labels.py`, the batch at once and on the device, where effdet goes image by image through the
host), and takes focal plus Huber loss; the moving average of the weights that a training run keeps is left out.
Evaluation takes the 5000 best pairs of anchor and class of each image through NMS, as always, and keeps 100 detections;
`initialisation.py` makes the boxes of random weights realistic. Boxes are in fp32 under every precision (`anchors.py`).
"""

import torch
from effdet import DetBenchPredict, create_model
from torch import Tensor, nn

from torchzoo.case import Mode
from torchzoo.model.data import OBJECTS_PER_IMAGE
from torchzoo.model.tasks import Batch, SupervisedModel

from .anchors import Fp32Anchors
from .initialisation import initialise
from .loss import AnchorLoss, draw_boxes

CALIBRATION_IMAGES = 8


class Model(SupervisedModel):
    sample_unit = "images"
    image_size = 640
    num_classes = 90
    box_count = OBJECTS_PER_IMAGE

    def build_network(self) -> nn.Module:
        network = create_model("tf_efficientdet_d1", pretrained_backbone=False)
        if self.mode is Mode.TRAIN:
            self.loss = AnchorLoss(network.config, self.device)
            return network
        images = self.data.images(CALIBRATION_IMAGES, 3, self.image_size, self.image_size)
        initialise(network.to(self.device), images)
        bench = DetBenchPredict(network)
        bench.anchors = Fp32Anchors.from_config(network.config)
        return bench

    def build_batch(self) -> Batch:
        images = self.data.images(self.batch_size, 3, self.image_size, self.image_size)
        if self.mode is Mode.EVAL:
            return Batch((images,))
        classes = self.data.integers(0, self.num_classes, self.batch_size, self.box_count)
        boxes = draw_boxes(self.data, self.batch_size, self.box_count, self.image_size)
        return Batch((images,), {"boxes": boxes, "classes": classes})

    def compute_loss(self, outputs: tuple[list[Tensor], list[Tensor]], targets: dict[str, Tensor]) -> Tensor:
        return self.loss(*outputs, targets["boxes"], targets["classes"])

    def build_optimizer(self) -> torch.optim.Optimizer:
        return torch.optim.SGD(self.network.parameters(), lr=0.01, momentum=0.9, weight_decay=4e-5)
