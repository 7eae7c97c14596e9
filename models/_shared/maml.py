"""Model-agnostic meta-learning (Finn, Abbeel and Levine, 2017, arXiv:1703.03400) of few-shot classifiers.

A task has `shots` support images and 15 query images of each of its five classes. A learner adapts a classifier to the
support images by a few steps of SGD and classifies the query images; gradients reach the initial weights through all
of these steps (second order). Shape letters: N support images, M query images, W classes, C channels.
"""

from __future__ import annotations

import abc
from dataclasses import dataclass
from typing import ClassVar, NamedTuple

import torch
from torch import Tensor, nn
from torch.func import functional_call
from torch.nn import functional as F

from torchzoo.case import Mode
from torchzoo.model import Model

Weights = dict[str, Tensor]

IMAGE_SIZE = 28
CLASSES = 5


class Task(NamedTuple):
    """W classes with K support and Q query images each."""

    support_images: Tensor  # (W K, 1, 28, 28)
    support_labels: Tensor  # (W K,)
    query_images: Tensor  # (W Q, 1, 28, 28)
    query_labels: Tensor  # (W Q,)


@dataclass(frozen=True, kw_only=True)
class InnerLoop:
    """How a task is learned: SGD on its support images."""

    steps: int
    learning_rate: float


class MetaLearner(nn.Module):
    """Learns a task from its support images (N, 1, 28, 28) and labels (N,), and gives its query images' logits (M, W).

    It is a network itself, inner loop included, so that what is compiled or counted holds the inner gradients.
    """

    def __init__(self, classifier: nn.Module, inner_loop: InnerLoop) -> None:
        super().__init__()
        self.classifier = classifier
        self.inner_loop = inner_loop

    def forward(self, support_images: Tensor, support_labels: Tensor, query_images: Tensor) -> Tensor:
        weights: Weights = dict(self.classifier.named_parameters())
        for _ in range(self.inner_loop.steps):
            gradients = torch.func.grad(self.support_loss)(weights, support_images, support_labels)
            weights = {
                name: weight - self.inner_loop.learning_rate * gradients[name] for name, weight in weights.items()
            }
        return self.classify(weights, query_images)

    def support_loss(self, weights: Weights, images: Tensor, labels: Tensor) -> Tensor:
        return F.cross_entropy(self.classify(weights, images), labels)

    def classify(self, weights: Weights, images: Tensor) -> Tensor:
        logits: Tensor = functional_call(self.classifier, weights, (images,))
        return logits


class OmniglotClassifier(nn.Module):
    """Images (N, 1, 28, 28) to logits (N, W); three layers with pooling, 75,205 parameters.

    The paper has four strided convolutions; MAML's implementations use this network for Omniglot.
    """

    def __init__(self, channels: int = 64) -> None:
        super().__init__()
        self.layers = nn.Sequential(
            *self.block(1, channels),  # (N, C, 13, 13)
            *self.block(channels, channels),  # (N, C, 5, 5)
            *self.block(channels, channels),  # (N, C, 1, 1)
            nn.Flatten(),
            nn.Linear(channels, CLASSES),
        )

    @staticmethod
    def block(in_channels: int, out_channels: int) -> tuple[nn.Module, ...]:
        return (nn.Conv2d(in_channels, out_channels, 3), batch_norm(out_channels), nn.ReLU(), nn.MaxPool2d(2))

    def forward(self, images: Tensor) -> Tensor:
        logits: Tensor = self.layers(images)
        return logits


def batch_norm(channels: int) -> nn.BatchNorm2d:
    """Batch normalisation that always uses the statistics of the batch at hand.

    That is what a momentum of 1 means in MAML's implementations: the images of a task are normalised together, in
    evaluation too.
    """
    return nn.BatchNorm2d(channels, track_running_stats=False)


class MetaLearning(Model):
    """One meta-update of one learner, the batch counted in tasks.

    A train step adapts to each task in turn, differentiates the loss of the adapted weights on its query images through
    the inner loop, and makes one Adam step on the mean over tasks. An eval step adapts in the same way without second
    derivatives, and gives the query images' logits (tasks, M, W).
    """

    sample_unit = "tasks"
    shots: ClassVar[int] = 1
    queries: ClassVar[int] = 15  # per class

    @abc.abstractmethod
    def build_learner(self) -> nn.Module: ...

    def build(self) -> None:
        self.learner = self.build_learner()
        self.batch = self.build_tasks()
        if self.mode is Mode.TRAIN:
            self.optimizer = torch.optim.Adam(self.learner.parameters(), lr=1e-3)

    def build_tasks(self) -> list[Task] | Task:
        return [self.build_task() for _ in range(self.batch_size)]

    def build_task(self) -> Task:
        labels = torch.arange(CLASSES)
        return Task(
            self.data.uniform(CLASSES * self.shots, 1, IMAGE_SIZE, IMAGE_SIZE),
            labels.repeat(self.shots),
            self.data.uniform(CLASSES * self.queries, 1, IMAGE_SIZE, IMAGE_SIZE),
            labels.repeat(self.queries),
        )

    def networks(self) -> dict[str, nn.Module]:
        return {"learner": self.learner}

    @property
    def example_inputs(self) -> tuple[Tensor, ...]:
        task: Task = self.batch[0]
        return task.support_images, task.support_labels, task.query_images

    def train_step(self) -> Tensor:
        self.optimizer.zero_grad()
        losses = []
        for support_images, support_labels, query_images, query_labels in self.batch:
            with self.autocast():
                logits = self.learner(support_images, support_labels, query_images)
                loss = F.cross_entropy(logits, query_labels) / self.batch_size
            self.backward(loss)
            losses.append(loss.detach())
        self.step(self.optimizer)
        return torch.stack(losses).sum()

    @torch.no_grad()  # of the step's outputs; the learner's own gradients are not affected
    def eval_step(self) -> Tensor:
        with self.autocast():
            logits = [self.learner(task.support_images, task.support_labels, task.query_images) for task in self.batch]
        return torch.stack(logits)
