"""Super SloMo (Jiang et al., 2018, arXiv:1712.00080) interpolating frames of 352 x 352.

As in training on clips of nine frames, a sample is the clip's first and last frame, and the frame wanted is any of the
seven between them. A train step takes all four losses, the perceptual one from the conv4_3 features of a frozen VGG-16
with random weights; an eval step computes the frame and no loss.
"""

from typing import Any

import torch
from torch import Tensor, nn

from torchzoo.case import Mode
from torchzoo.model.tasks import Batch, SupervisedModel

from .loss import PerceptualFeatures, interpolation_loss
from .network import Config, Interpolation, SuperSloMo


class Model(SupervisedModel):
    sample_unit = "frames"
    size = 352
    frames_per_clip = 9
    learning_rate = 1e-4

    def build(self) -> None:
        super().build()
        if self.mode is Mode.TRAIN:
            self.features = PerceptualFeatures()

    def build_network(self) -> nn.Module:
        return SuperSloMo(Config())

    def build_batch(self) -> Batch:
        frame0, frame1, frame = (self.data.uniform(self.batch_size, 3, self.size, self.size) for _ in range(3))
        last = self.frames_per_clip - 1
        time = self.data.integers(1, last, self.batch_size, 1, 1, 1) / last
        return Batch((frame0, frame1, time), frame if self.mode is Mode.TRAIN else None)

    def networks(self) -> dict[str, nn.Module]:
        if self.mode is Mode.EVAL:
            return {"network": self.network}
        return {"network": self.network, "features": self.features}

    def compute_loss(self, outputs: Interpolation, targets: Tensor) -> Tensor:
        inputs: Any = self.batch.inputs
        frame0, frame1, _ = inputs
        return interpolation_loss(outputs, targets, frame0, frame1, self.features)

    def build_optimizer(self) -> torch.optim.Optimizer:
        return torch.optim.Adam(self.network.parameters(), lr=self.learning_rate)

    @torch.no_grad()
    def eval_step(self) -> Tensor:
        with self.autocast():
            frame: Tensor = self.forward().frame
        return frame
