"""YOLOv3-SPP (Redmon and Farhadi, 2018, arXiv:1804.02767; He et al., 2014, arXiv:1406.4729) detecting 80 classes.

Training sees images of 416 x 416 with 8 objects each, about what COCO has, and updates with the learning rate that
follows the warm-up. Evaluation, of images of 384 x 512, includes decoding and non-maximum suppression.

So that random weights give suppression a realistic load, the batch normalisations of evaluation hold the statistics of
the batch, class biases differ as frequent and rare classes do, and the 1000 best pairs of box and class per image enter
suppression, which keeps 100; few of them overlap.
"""

from typing import Any

import torch
from torch import Tensor, nn

from torchzoo.case import Mode
from torchzoo.model.tasks import Batch, SupervisedModel

from .detection import detect
from .initialisation import initialise, take_statistics
from .loss import Objects, detection_loss
from .network import Config, YOLOv3


class Model(SupervisedModel):
    sample_unit = "images"
    config = Config()
    train_size = (416, 416)
    eval_size = (384, 512)
    objects_per_image = 8
    learning_rate = 0.01
    momentum = 0.937
    weight_decay = 5e-4
    network: YOLOv3

    def build(self) -> None:
        super().build()
        if self.mode is Mode.EVAL:
            inputs: Any = self.batch.inputs
            take_statistics(self.network, *inputs)

    def build_network(self) -> nn.Module:
        network = YOLOv3(self.config)
        initialise(network)
        return network

    def build_batch(self) -> Batch:
        height, width = self.train_size if self.mode is Mode.TRAIN else self.eval_size
        images = self.data.uniform(self.batch_size, 3, height, width)
        return Batch((images,), self.build_objects() if self.mode is Mode.TRAIN else None)

    def build_objects(self) -> Objects:
        count = self.batch_size * self.objects_per_image
        corners = self.data.boxes(count, 1, 1).view(self.batch_size, self.objects_per_image, 4)
        low, high = corners[..., :2], corners[..., 2:]
        labels = self.data.labels(count, self.config.classes).view(self.batch_size, -1)
        return Objects(torch.cat([(low + high) / 2, high - low], dim=-1), labels)

    def compute_loss(self, outputs: list[Tensor], targets: Objects) -> Tensor:
        return detection_loss(outputs, self.network.anchors, self.config.strides, targets)

    def build_optimizer(self) -> torch.optim.Optimizer:
        """SGD with Nesterov momentum; only the weights of convolutions are decayed."""
        weights = [parameter for parameter in self.network.parameters() if parameter.ndim == 4]
        others = [parameter for parameter in self.network.parameters() if parameter.ndim != 4]
        groups: list[dict[str, Any]] = [{"params": weights, "weight_decay": self.weight_decay}, {"params": others}]
        return torch.optim.SGD(groups, lr=self.learning_rate, momentum=self.momentum, nesterov=True)

    @torch.no_grad()
    def eval_step(self) -> list[Tensor]:
        with self.autocast():
            predictions = self.forward()
        return detect(predictions, self.network.anchors, self.config.strides)
