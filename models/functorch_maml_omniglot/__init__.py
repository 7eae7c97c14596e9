"""MAML (Finn, Abbeel and Levine, 2017, arXiv:1703.03400) on 5-way 1-shot Omniglot tasks, all tasks at once.

The same meta-update as that of `maml_omniglot`, with torch.func's `vmap` over the tasks and `grad` inside: one pass
adapts to the whole meta-batch, whose tasks the batch counts. After the first inner step each task has its own weights.
"""

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from .._shared.maml import InnerLoop, MetaLearner, MetaLearning, OmniglotClassifier, Task


class ParallelLearner(nn.Module):
    """T tasks' support images (T, N, 1, 28, 28) and labels (T, N), and query images to their logits (T, M, W)."""

    def __init__(self, learner: MetaLearner) -> None:
        super().__init__()
        self.learner = learner

    def forward(self, support_images: Tensor, support_labels: Tensor, query_images: Tensor) -> Tensor:
        logits: Tensor = torch.func.vmap(self.learn)(support_images, support_labels, query_images)
        return logits

    def learn(self, support_images: Tensor, support_labels: Tensor, query_images: Tensor) -> Tensor:
        """One task (vmap of the module itself would ask for its name, which Dynamo can't trace)."""
        logits: Tensor = self.learner(support_images, support_labels, query_images)
        return logits


class Model(MetaLearning):
    batch: Task  # with a leading dimension of tasks

    def build_learner(self) -> nn.Module:
        return ParallelLearner(MetaLearner(OmniglotClassifier(), InnerLoop(steps=5, learning_rate=0.1)))

    def build_tasks(self) -> Task:
        tasks = [self.build_task() for _ in range(self.batch_size)]
        return Task(*(torch.stack(field) for field in zip(*tasks, strict=True)))

    @property
    def example_inputs(self) -> tuple[Tensor, ...]:
        return self.batch.support_images, self.batch.support_labels, self.batch.query_images

    def train_step(self) -> Tensor:
        self.optimizer.zero_grad()
        with self.autocast():
            logits = self.learner(*self.example_inputs)
            loss = F.cross_entropy(logits.flatten(0, 1), self.batch.query_labels.flatten())
        self.backward(loss)
        self.step(self.optimizer)
        return loss.detach()

    @torch.no_grad()  # of the step's outputs; the learner's own gradients are not affected
    def eval_step(self) -> Tensor:
        with self.autocast():
            logits: Tensor = self.learner(*self.example_inputs)
        return logits
