"""DBNet on ResNet-50 (Liao et al., 2019, arXiv:1911.08947) finding the words on pages of 1024 x 1024, as in docTR.

Evaluation is the network alone: docTR's predictor resizes pages before it and draws polygons around the regions of its
probability map after it, both on the host. Training has docTR's loss. Adam and the norm that gradients are clipped to
are those of its training script (https://github.com/mindee/doctr, 2026). There are 64 words per page at random places;
their target maps are drawn once, before the step. The network is written here because docTR 1.1 wants an older
huggingface-hub than `constraints.txt` has; with docTR's weights it gives its outputs.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from torchzoo.case import Mode
from torchzoo.model.tasks import Batch, SupervisedModel

from .loss import TargetMaps, detection_loss, draw_words
from .network import Config, DBNet


class Model(SupervisedModel):
    sample_unit = "images"
    config = Config()
    page_size = 1024
    words_per_page = 64
    max_grad_norm = 5.0

    def build_network(self) -> nn.Module:
        return DBNet(self.config)

    def build_batch(self) -> Batch:
        pages = self.data.images(self.batch_size, 3, self.page_size, self.page_size)
        if self.mode is Mode.EVAL:
            return Batch((pages,))
        maps = [draw_words(self.build_words(), self.page_size) for _ in range(self.batch_size)]
        return Batch((pages,), TargetMaps(*(torch.stack(single) for single in zip(*maps, strict=True))))

    def build_words(self) -> Tensor:
        """(M, 4) boxes x1, y1, x2, y2, in pixels: words 30 to 150 wide and 12 to 40 high, wholly on the page."""
        smallest, largest = torch.tensor([30.0, 12.0]), torch.tensor([150.0, 40.0])
        extent = smallest + (largest - smallest) * self.data.uniform(self.words_per_page, 2)
        corner = (self.page_size - extent) * self.data.uniform(self.words_per_page, 2)
        return torch.cat([corner, corner + extent], dim=1)

    def compute_loss(self, outputs: tuple[Tensor, Tensor], targets: TargetMaps) -> Tensor:
        return detection_loss(*outputs, targets)

    def build_optimizer(self) -> torch.optim.Optimizer:
        return torch.optim.Adam(self.network.parameters(), lr=1e-3, betas=(0.95, 0.999), eps=1e-6)
