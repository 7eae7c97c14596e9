"""CRNN on VGG-16 (Shi et al., 2015, arXiv:1507.05717) reading words in crops of 32 x 128, as in docTR.

Evaluation is the network alone: docTR's predictor decodes the best path on the host. Training is by CTC (Graves et al.,
2006) on words of 10 characters. Adam and the norm that gradients are clipped to are those of docTR's training script
(https://github.com/mindee/doctr, 2026). The network is written here because docTR 1.1 wants an older huggingface-hub
than `constraints.txt` has; with docTR's weights it gives its outputs.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from torchzoo.case import Mode
from torchzoo.model.tasks import Batch, SupervisedModel

from .network import CRNN, Config


class Model(SupervisedModel):
    sample_unit = "words"
    config = Config()
    height, width = 32, 128
    word_length = 10
    max_grad_norm = 5.0

    def build_network(self) -> nn.Module:
        return CRNN(self.config)

    def build_batch(self) -> Batch:
        crops = self.data.images(self.batch_size, 3, self.height, self.width)
        if self.mode is Mode.EVAL:
            return Batch((crops,))
        return Batch((crops,), self.data.integers(0, self.config.characters, self.batch_size, self.word_length))

    def compute_loss(self, outputs: Tensor, targets: Tensor) -> Tensor:
        """The mean over words of minus the log likelihood per character; logits (B, T, K), words (B, L)."""
        log_probabilities = outputs.log_softmax(dim=2, dtype=torch.promote_types(outputs.dtype, torch.float32))
        return F.ctc_loss(
            log_probabilities.transpose(0, 1),
            targets,
            input_lengths=(outputs.shape[1],) * self.batch_size,  # type: ignore[arg-type]
            target_lengths=(self.word_length,) * self.batch_size,  # type: ignore[arg-type]
            blank=self.config.characters,
            zero_infinity=True,
        )

    def build_optimizer(self) -> torch.optim.Optimizer:
        return torch.optim.Adam(self.network.parameters(), lr=1e-3, betas=(0.95, 0.999), eps=1e-6)
