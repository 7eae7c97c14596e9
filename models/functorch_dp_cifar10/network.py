"""Gradients of single images, clipped and summed (Abadi et al., 2016, arXiv:1607.00133, algorithm 1).

Shape letters: B images of side S.
"""

import torch
from torch import Tensor, nn
from torch.func import functional_call, grad_and_value, vmap
from torch.nn import functional as F

Gradients = dict[str, Tensor]


class ClippedGradients(nn.Module):
    """Images (B, 3, S, S) and labels (B,) to losses (B,) and, by parameter, the sum of the images' clipped gradients.

    It is a network itself, so that what is compiled or counted holds the gradients.
    """

    def __init__(self, classifier: nn.Module, clipping_norm: float) -> None:
        super().__init__()
        self.classifier = classifier
        self.clipping_norm = clipping_norm

    def forward(self, images: Tensor, labels: Tensor) -> tuple[Tensor, Gradients]:
        weights = {name: parameter.detach() for name, parameter in self.classifier.named_parameters()}
        gradient = grad_and_value(self.loss)
        gradients, losses = vmap(gradient, in_dims=(None, 0, 0))(weights, images, labels)  # by name (B, ...); (B,)
        norms = torch.stack([each.flatten(1).norm(dim=1) for each in gradients.values()]).norm(dim=0)  # (B,)
        scales = (self.clipping_norm / (norms + 1e-6)).clamp(max=1.0)
        return losses, {name: torch.einsum("b,b...->...", scales, each) for name, each in gradients.items()}

    def loss(self, weights: Gradients, image: Tensor, label: Tensor) -> Tensor:
        """Of one image (3, S, S)."""
        logits = functional_call(self.classifier, weights, (image[None],))
        return F.cross_entropy(logits, label[None])
