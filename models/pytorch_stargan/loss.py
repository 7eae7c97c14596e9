"""StarGAN's discriminator loss: Wasserstein with gradient penalty (Gulrajani et al., 2017) and domain classification.

Shape letters: B batch, S side in pixels, D domains.
"""

import torch
from torch import Tensor, nn
from torch.nn import functional as F

PENALTY_WEIGHT = 10.0
# The gradient of a score by one pixel is small, and fp16 ends at 6e-8: it is taken of a larger score and divided
# afterwards, as in PyTorch's recipe for gradient penalties under autocast. A power of two is exact.
GRADIENT_SCALE = 2.0**10


class Critic(nn.Module):
    """The discriminator with its own loss: called with images alone, it scores and classifies them.

    Called with real images (B, 3, S, S) of `domains` (B, D), `fakes` and mixing weights `mix` (B, 1, 1, 1), it returns
    the loss. The gradient that the penalty holds is taken in here, so that it belongs to the network that is called:
    code compiled for the discriminator alone could not be differentiated twice.
    """

    def __init__(self, discriminator: nn.Module) -> None:
        super().__init__()
        self.discriminator = discriminator

    def forward(
        self, images: Tensor, domains: Tensor | None = None, fakes: Tensor | None = None, mix: Tensor | None = None
    ) -> tuple[Tensor, Tensor] | Tensor:
        if domains is None or fakes is None or mix is None:
            score, logits = self.discriminator(images)
            return score, logits
        real_score, logits = self.discriminator(images)
        fake_score, _ = self.discriminator(fakes)
        penalty = self.gradient_penalty(mix * images + (1.0 - mix) * fakes)
        return fake_score.mean() - real_score.mean() + classification_loss(logits, domains) + PENALTY_WEIGHT * penalty

    def gradient_penalty(self, images: Tensor) -> Tensor:
        """How far the slopes of the scores at `images` are from 1."""
        gradient = torch.func.grad(self.scaled_score)(images)  # (B, 3, S, S)
        slope = torch.linalg.vector_norm(gradient, dim=(1, 2, 3)) / GRADIENT_SCALE  # (B,)
        return (slope - 1.0).square().mean()

    def scaled_score(self, images: Tensor) -> Tensor:
        score, _ = self.discriminator(images)
        total: Tensor = GRADIENT_SCALE * score.sum()
        return total


def classification_loss(logits: Tensor, domains: Tensor) -> Tensor:
    """Binary cross entropy of logits (B, D), summed over domains, mean over the batch."""
    return F.binary_cross_entropy_with_logits(logits, domains, reduction="sum") / len(logits)
