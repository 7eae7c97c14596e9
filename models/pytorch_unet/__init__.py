"""U-Net (Ronneberger, Fischer and Brox, 2015, arXiv:1505.04597) cutting photographs into foreground and background.

Images of 640 x 959, the half-size photographs of the Carvana masking challenge: the odd width makes every up-sampled
map one column too narrow for its skip connection. The masks are random per pixel, so that both classes are in all of
them. The original is trained under automatic mixed precision (`--precision amp`). 17,267,458 parameters, which is the
variant with bilinear up-sampling and a deepest level of 512 channels: `network.py` says why.
"""

import torch
from torch import Tensor, nn

from torchzoo.model.tasks import Batch, SupervisedModel

from .loss import segmentation_loss
from .network import BilinearUNet, Config


class Model(SupervisedModel):
    sample_unit = "images"
    config = Config()
    height = 640
    width = 959

    def build_network(self) -> nn.Module:
        return BilinearUNet(self.config)

    def build_batch(self) -> Batch:
        images = self.data.uniform(self.batch_size, self.config.in_channels, self.height, self.width)
        masks = self.data.integers(0, self.config.classes, self.batch_size, self.height, self.width)
        return Batch((images,), masks)

    def compute_loss(self, outputs: Tensor, targets: Tensor) -> Tensor:
        return segmentation_loss(outputs, targets)

    def build_optimizer(self) -> torch.optim.Optimizer:
        return torch.optim.RMSprop(self.network.parameters(), lr=1e-5, momentum=0.9, weight_decay=1e-8)
