"""EfficientDet-D1 (Tan, Pang and Le, 2019, arXiv:1911.09070) detecting objects of 90 classes at 640 x 640.

Network, loss and detection are effdet's (tf_efficientdet_d1). A train step labels the anchors with the 20 boxes of each
image (`labels.py`, the batch at once and on the device, where effdet goes image by image through the host), and takes
focal plus Huber loss; the moving average of the weights that a training run keeps is left out. Evaluation takes the
5000 best pairs of anchor and class of each image through NMS, as always, and keeps 100 detections; `initialisation.py`
makes the boxes of random weights realistic.
"""

from __future__ import annotations

import torch
from effdet import DetBenchPredict, create_model
from effdet.anchors import Anchors
from effdet.loss import DetectionLoss
from torch import Tensor, nn

from torchzoo.model import Batch, SupervisedModel
from torchzoo.spec import Mode

from .initialisation import initialise
from .labels import label_anchors, split_levels

CALIBRATION_IMAGES = 8


class Model(SupervisedModel):
    sample_unit = "images"
    image_size = 640
    num_classes = 90
    box_count = 20

    def build_network(self) -> nn.Module:
        network = create_model("tf_efficientdet_d1", pretrained_backbone=False)
        if self.mode is Mode.TRAIN:
            self.anchors = Anchors.from_config(network.config).to(self.device)
            self.loss = DetectionLoss(network.config)
            return network
        images = self.data.images(CALIBRATION_IMAGES, 3, self.image_size, self.image_size)
        initialise(network.to(self.device), images)
        return DetBenchPredict(network)

    def build_batch(self) -> Batch:
        images = self.data.images(self.batch_size, 3, self.image_size, self.image_size)
        if self.mode is Mode.EVAL:
            return Batch((images,))
        classes = self.data.integers(0, self.num_classes, self.batch_size, self.box_count)
        return Batch((images,), {"boxes": self.build_boxes(), "classes": classes})

    def build_boxes(self) -> Tensor:
        """(B, M, 4) boxes y1, x1, y2, x2, in pixels: of 1/20 to 4/5 of the image's side, so that all levels match some.

        Sizes are uniform in their logarithm, the ratios of height and width are up to 3/2.
        """
        shape = (self.batch_size, self.box_count, 1)
        size, stretch = 0.05 * 16 ** self.data.uniform(*shape), 1.5 ** self.data.uniform(*shape, low=-0.5, high=0.5)
        extent = torch.cat([size * stretch, size / stretch], dim=2)
        corner = (1 - extent) * self.data.uniform(self.batch_size, self.box_count, 2)
        return self.image_size * torch.cat([corner, corner + extent], dim=2)

    def compute_loss(self, outputs: tuple[list[Tensor], list[Tensor]], targets: dict[str, Tensor]) -> Tensor:
        class_outputs, box_outputs = outputs
        labels = label_anchors(self.anchors.boxes, targets["boxes"], targets["classes"])
        loss, _, _ = self.loss(
            class_outputs,
            box_outputs,
            split_levels(labels.classes, class_outputs),
            split_levels(labels.box_offsets, box_outputs),
            labels.positives,
        )
        return loss

    def build_optimizer(self) -> torch.optim.Optimizer:
        return torch.optim.SGD(self.network.parameters(), lr=0.01, momentum=0.9, weight_decay=4e-5)
