"""The Wasserstein loss with gradient penalty (Gulrajani et al., 2017, arXiv:1704.00028) of a network that scores.

Shape letters: B batch, S side in pixels.
"""

import torch
from torch import Tensor, nn

# The gradient of a score by one pixel is small, about 1e-5 at first, and fp16 ends at 6e-8: it is taken of a larger
# score and divided afterwards, as in PyTorch's recipe for gradient penalties under autocast. A power of two is exact.
GRADIENT_SCALE = 2.0**10


class WassersteinLoss(nn.Module):
    """Real and fake pairs (B, 6, S, S) and mixing weights (B, 1, 1, 1) to the loss of the `score` network.

    The penalty wants a slope of 1 between real and fake. Its inner gradient is taken in here, so that it belongs to
    the network that is called: code compiled for `score` alone could not be differentiated twice.
    """

    def __init__(self, score: nn.Module, penalty_weight: float = 10.0) -> None:
        super().__init__()
        self.score = score
        self.penalty_weight = penalty_weight

    def forward(self, real: Tensor, fake: Tensor, mix: Tensor) -> Tensor:
        mixed = mix * real + (1.0 - mix) * fake
        gradient = torch.func.grad(self.scaled_score)(mixed)  # (B, 6, S, S)
        slope = torch.linalg.vector_norm(gradient, dim=(1, 2, 3)) / GRADIENT_SCALE  # (B,)
        penalty = (slope - 1.0).square().mean()
        loss: Tensor = self.score(fake).mean() - self.score(real).mean() + self.penalty_weight * penalty
        return loss

    def scaled_score(self, pairs: Tensor) -> Tensor:
        score: Tensor = GRADIENT_SCALE * self.score(pairs).sum()
        return score
