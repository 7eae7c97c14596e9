"""What the models have in common whose network is transformers' `WhisperForAudioClassification`."""

from __future__ import annotations

from typing import ClassVar

from torchzoo.case import Mode
from torchzoo.model.tasks import Batch, TransformersModel


class WhisperClassifier(TransformersModel):
    """Log-mel spectrograms (B, M, F) of 30 seconds to logits (B, K); the network's own cross entropy, Adam at 1e-3."""

    sample_unit = "clips"
    mel_channels: ClassVar[int] = 80
    frames: ClassVar[int] = 3000
    num_classes: ClassVar[int] = 2

    def build_batch(self) -> Batch:
        inputs = {"input_features": self.data.normal(self.batch_size, self.mel_channels, self.frames)}
        if self.mode is Mode.TRAIN:
            inputs["labels"] = self.data.labels(self.batch_size, self.num_classes)
        return Batch(inputs)
