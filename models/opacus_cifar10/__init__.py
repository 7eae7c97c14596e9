"""ResNet-18 on CIFAR-10-sized images, trained with differential privacy (Abadi et al., 2016, arXiv:1607.00133).

Opacus computes one gradient per image, clips each to the norm 1, sums them, adds Gaussian noise of deviation 1 and
divides by the batch size; every step's privacy loss is booked. Batch normalisation mixes the images of a batch, so
group normalisation stands in its place. Drawing the batch (Poisson sampling, whose batches vary in size) is the data
loader's part of the method and not in the step. Evaluation is the bare network.
"""

import warnings

import torch
from opacus import GradSampleModule
from opacus.accountants import RDPAccountant
from opacus.optimizers import DPOptimizer
from torch import nn

from torchzoo.case import Mode
from torchzoo.model.tasks import ImageClassifier

from .network import out_of_place_resnet18

NOISE_MULTIPLIER = 1.0  # of the clipping norm
CLIPPING_NORM = 1.0
TRAINING_IMAGES = 50_000  # of CIFAR-10: the privacy loss depends on how likely an image is to be drawn

# PyTorch says so in every step because the images need no gradient; Opacus wants the gradient of the outputs alone.
warnings.filterwarnings("ignore", message="Full backward hook is firing when gradients are computed")


class Model(ImageClassifier):
    image_size = 32
    num_classes = 10

    def build_network(self) -> nn.Module:
        network = out_of_place_resnet18(self.num_classes)
        return GradSampleModule(network) if self.mode is Mode.TRAIN else network

    def build_optimizer(self) -> torch.optim.Optimizer:
        optimizer = DPOptimizer(
            torch.optim.Adam(self.network.parameters(), lr=1e-3),
            noise_multiplier=NOISE_MULTIPLIER,
            max_grad_norm=CLIPPING_NORM,
            expected_batch_size=self.batch_size,
        )
        accountant = RDPAccountant()
        optimizer.attach_step_hook(accountant.get_optimizer_hook_fn(sample_rate=self.batch_size / TRAINING_IMAGES))
        return optimizer
