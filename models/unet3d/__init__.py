"""3D U-Net (Çiçek et al., 2016, arXiv:1606.06650) of MLPerf (Mattson et al., 2020, arXiv:1910.01500): kidney tumours.

Crops of 128 voxels a side, as MLPerf takes them from the CT scans of KiTS19, with SGD as it is after the warm-up. The
labels are random per voxel, so that every class is in every crop. An eval step is one window of the sliding-window
inference.

It has 31,190,243 parameters; MLPerf gives no number, and a count of its configuration by hand gives the same. By our
count an eval step takes 0.955 TFLOP and a train step of two volumes 5.72. By hand: 3 x 3 x 3 convolutions of 32, 64,
128, 256, 320 and 320 channels at sides of 128 to 4 voxels, twice downwards and twice upwards, and the transposed ones
of 2 x 2 x 2; 0.955. Training takes three times that for each volume, without the gradient of the input: 5.72.
"""

import torch
from torch import Tensor, nn

from torchzoo.model.tasks import Batch, SupervisedModel

from .loss import segmentation_loss
from .network import Config, UNet3D


class Model(SupervisedModel):
    sample_unit = "volumes"
    config = Config()
    size = 128
    learning_rate = 0.8
    momentum = 0.9

    def build_network(self) -> nn.Module:
        return UNet3D(self.config)

    def build_batch(self) -> Batch:
        sides = (self.size, self.size, self.size)
        volumes = self.data.normal(self.batch_size, self.config.in_channels, *sides)
        return Batch((volumes,), self.data.integers(0, self.config.classes, self.batch_size, *sides))

    def compute_loss(self, outputs: Tensor, targets: Tensor) -> Tensor:
        return segmentation_loss(outputs, targets)

    def build_optimizer(self) -> torch.optim.Optimizer:
        return torch.optim.SGD(self.network.parameters(), lr=self.learning_rate, momentum=self.momentum, nesterov=True)
