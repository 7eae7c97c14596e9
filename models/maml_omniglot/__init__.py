"""MAML (Finn, Abbeel and Levine, 2017, arXiv:1703.03400), second order, on 5-way 1-shot Omniglot tasks.

The batch is the meta-batch, counted in tasks; a task has one support image and 15 query images of each of its five
classes. A train step is one meta-update: each task in turn is learned by five steps of SGD on its support images, the
loss of the adapted weights on its query images is differentiated through those steps, and one Adam step follows on the
mean over tasks. An eval step adapts to each task in the same way, keeping nothing for a second derivative, and gives
the logits of its query images. Tasks are adapted to one after another, as the published implementations do; the paper
has four strided convolutions, this is the three-layer network with pooling that they took up for Omniglot.

The network is the whole learner, inner loop included, so that what is compiled or counted holds the inner gradients.
"""

from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional as F

import torchzoo.model
from torchzoo.spec import Mode

from .network import Config, MetaLearner


class Task(NamedTuple):
    """W classes with K support and Q query images each."""

    support_images: Tensor  # (W K, 1, 28, 28)
    support_labels: Tensor  # (W K,)
    query_images: Tensor  # (W Q, 1, 28, 28)
    query_labels: Tensor  # (W Q,)


class Model(torchzoo.model.Model):
    sample_unit = "tasks"
    shots = 1
    queries = 15  # per class

    def build(self) -> None:
        self.config = Config()
        self.learner = MetaLearner(self.config)
        self.batch = [self.build_task() for _ in range(self.batch_size)]
        if self.mode is Mode.TRAIN:
            self.optimizer = torch.optim.Adam(self.learner.parameters(), lr=1e-3)

    def build_task(self) -> Task:
        classes, size = self.config.classes, self.config.image_size
        labels = torch.arange(classes)
        return Task(
            self.data.uniform(classes * self.shots, 1, size, size),
            labels.repeat(self.shots),
            self.data.uniform(classes * self.queries, 1, size, size),
            labels.repeat(self.queries),
        )

    def networks(self) -> dict[str, nn.Module]:
        return {"learner": self.learner}

    @property
    def example_inputs(self) -> tuple[Tensor, ...]:
        support_images, support_labels, query_images, _ = self.batch[0]
        return support_images, support_labels, query_images

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
