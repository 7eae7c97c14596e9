"""ResNet-18 on CIFAR-10-sized images, trained with differential privacy (Abadi et al., 2016, arXiv:1607.00133).

The step of `opacus_cifar10` without a library: torch.func computes one gradient per image (`vmap` of `grad`), each is
clipped to the norm 1, they are summed, Gaussian noise of deviation 1 is added, and Adam updates with their mean.
Batch normalisation mixes the images of a batch, so group normalisation stands in its place. With 10 classes there are
11,181,642 parameters; the 11,689,512 of another implementation are those of 1000. Evaluation is the bare network.
"""

import torch
from torch import Tensor, nn

from torchzoo.case import Mode
from torchzoo.model.tasks import Batch, ImageClassifier

from .._shared.group_norm_resnet import group_norm_resnet18
from .network import ClippedGradients

CLIPPING_NORM = 1.0
NOISE_MULTIPLIER = 1.0  # of the clipping norm


class Model(ImageClassifier):
    image_size = 32
    num_classes = 10

    def build_network(self) -> nn.Module:
        self.classifier = group_norm_resnet18(self.num_classes)
        return ClippedGradients(self.classifier, CLIPPING_NORM) if self.mode is Mode.TRAIN else self.classifier

    def build_batch(self) -> Batch:
        (images,), labels = super().build_batch()
        return Batch((images, labels)) if self.mode is Mode.TRAIN else Batch((images,))

    def train_step(self) -> Tensor:
        self.optimizer.zero_grad()
        losses, gradients = self.clipped_gradients()
        for name, parameter in self.classifier.named_parameters():
            noise = NOISE_MULTIPLIER * CLIPPING_NORM * torch.randn_like(parameter)
            parameter.grad = (gradients[name] + noise) / self.batch_size
        self.step(self.optimizer)
        return losses.mean()

    def clipped_gradients(self) -> tuple[Tensor, dict[str, Tensor]]:
        with self.autocast():
            losses, gradients = self.forward()
        return losses, gradients
