"""A classifier, and the learner that adapts it to a task (Finn, Abbeel and Levine, 2017, arXiv:1703.03400).

Shape letters: N support images, M query images, W classes, C channels; comments give the shapes at 28 x 28 pixels.
"""

from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.func import functional_call
from torch.nn import functional as F

Weights = dict[str, Tensor]


@dataclass(frozen=True, kw_only=True)
class Config:
    image_size: int = 28
    channels: int = 64
    classes: int = 5
    inner_steps: int = 5
    inner_learning_rate: float = 0.1


class Classifier(nn.Module):
    """Images (N, 1, 28, 28) to logits (N, W); 75,205 parameters.

    Batch normalisation always uses the statistics of the batch at hand, which is what a momentum of 1 means in MAML's
    implementations: the images of a task are normalised together, in evaluation too.
    """

    def __init__(self, config: Config) -> None:
        super().__init__()
        self.layers = nn.Sequential(
            *self.block(1, config.channels),  # (N, C, 13, 13)
            *self.block(config.channels, config.channels),  # (N, C, 5, 5)
            *self.block(config.channels, config.channels),  # (N, C, 1, 1)
            nn.Flatten(),
            nn.Linear(config.channels, config.classes),
        )

    @staticmethod
    def block(in_channels: int, out_channels: int) -> tuple[nn.Module, ...]:
        return (
            nn.Conv2d(in_channels, out_channels, 3),
            nn.BatchNorm2d(out_channels, track_running_stats=False),
            nn.ReLU(),
            nn.MaxPool2d(2),
        )

    def forward(self, images: Tensor) -> Tensor:
        logits: Tensor = self.layers(images)
        return logits


class MetaLearner(nn.Module):
    """Learns a task from its support images (N, 1, 28, 28) and labels (N,), and gives its query images' logits (M, W).

    The initial weights are the classifier's; gradients reach them through all inner steps.
    """

    def __init__(self, config: Config) -> None:
        super().__init__()
        self.config = config
        self.classifier = Classifier(config)

    def forward(self, support_images: Tensor, support_labels: Tensor, query_images: Tensor) -> Tensor:
        weights: Weights = dict(self.classifier.named_parameters())
        for _ in range(self.config.inner_steps):
            gradients = torch.func.grad(self.support_loss)(weights, support_images, support_labels)
            weights = {
                name: weight - self.config.inner_learning_rate * gradients[name] for name, weight in weights.items()
            }
        return self.classify(weights, query_images)

    def support_loss(self, weights: Weights, images: Tensor, labels: Tensor) -> Tensor:
        return F.cross_entropy(self.classify(weights, images), labels)

    def classify(self, weights: Weights, images: Tensor) -> Tensor:
        logits: Tensor = functional_call(self.classifier, weights, (images,))
        return logits
