"""Run the model's own step with other weights: like those of a trained network, pruned ones, or zeros.

Eager's weights are as the model draws them before training. Other values change the power that a step draws, and so its
time at the device's power limit. Nothing is loaded: `trained` weights have the spectra that are published for trained
networks. The eigenvalues of W^T W of a layer follow a power law with an exponent alpha, mostly from 2 to 4 (Martin &
Mahoney, 2021, JMLR 22(165), arXiv:1810.01075; Martin, Peng & Mahoney, 2021, Nature Communications 12:4122). `pruned`
are these with the smallest 90% of each matrix set to zero, as magnitude pruning of a Transformer or ResNet-50 may leave
them (Gale, Elsen & Hooker, 2019, arXiv:1902.09574). Activations follow from the weights and the model's own inputs.
Their sparsity is not imposed.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from torchzoo.backends import NotRunnable
from torchzoo.case import Backend
from torchzoo.model import Model

Step = Callable[[], Any]

#: The exponent of the density of eigenvalues: the middle of what is published.
ALPHA = 3.0
#: The share of a pruned matrix that is zero.
SPARSITY = 0.9


def changed_step(model: Model, step: Step, backend: Backend) -> Step:
    """Return the step with other values in each matrix of the networks except embeddings, which are looked up.

    Weights are exchanged by reference before and after the step, which takes some microseconds for each matrix.

    Raises:
        NotRunnable: no network has a matrix.
    """
    draw = _DRAWN[backend.option or "trained"](Trained(model.device))
    pairs = [(weight, draw(weight.data)) for weight in matrices(model)]
    if not pairs:
        raise NotRunnable("its networks have no matrices whose values could be others")

    def changed() -> Any:
        own = [weight.data for weight, _ in pairs]
        for weight, other in pairs:
            weight.data = other
        try:
            return step()
        finally:
            for (weight, _), before in zip(pairs, own, strict=True):
                weight.data = before

    return changed


def matrices(model: Model) -> list[nn.Parameter]:
    """Return the weights of linear layers, convolutions and the like, without duplicates."""
    networks = model.networks().values()
    looked_up = {
        id(parameter)
        for network in networks
        for module in network.modules()
        if isinstance(module, nn.Embedding | nn.EmbeddingBag)
        for parameter in module.parameters(recurse=False)
    }
    found = {id(one): one for network in networks for one in network.parameters() if one.ndim > 1}
    return [one for key, one in found.items() if key not in looked_up and one.is_floating_point()]


class Trained:
    """A source of matrices with the spectra of trained ones, equal in each process."""

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self._generator = torch.Generator(device).manual_seed(0)
        self._roots: dict[int, Tensor] = {}

    def like(self, weight: Tensor) -> Tensor:
        """Return a matrix of the weight's shape, norm and dtype, whose eigenvalues have a tail of exponent `ALPHA`.

        A Gaussian matrix is multiplied by the root of a covariance with such eigenvalues in a random basis: the
        eigenvalues of the product have the same tail. Of a convolution, the first axis is one side of the matrix.
        """
        rows = weight.reshape(weight.shape[0], -1)
        side, other = sorted(rows.shape)
        made = self._normal(other, side) @ self._root(side)
        made = made.T if rows.shape[0] == side else made
        made = made * (rows.float().norm() / made.norm())
        return torch.empty_like(weight).copy_(made.reshape(weight.shape))

    def pruned(self, weight: Tensor) -> Tensor:
        """Return a matrix as by `like`, with its smallest values set to zero."""
        drawn = self.like(weight)
        sizes = drawn.abs().flatten()
        kept = max(1, round((1 - SPARSITY) * sizes.numel()))
        least = sizes.float().kthvalue(sizes.numel() - kept + 1).values
        return drawn.masked_fill(drawn.abs() < least, 0.0)

    def _root(self, side: int) -> Tensor:
        """The root of a covariance whose eigenvalues are the quantiles of a density that falls with the power alpha."""
        if side not in self._roots:
            basis, _ = torch.linalg.qr(self._normal(side, side))
            places = torch.arange(1, side + 1, device=self._device, dtype=torch.float32) / side
            self._roots[side] = (basis * places ** (-1 / (2 * (ALPHA - 1)))) @ basis.T
        return self._roots[side]

    def _normal(self, *shape: int) -> Tensor:
        return torch.randn(shape, generator=self._generator, device=self._device)


_DRAWN: dict[str, Callable[[Trained], Callable[[Tensor], Tensor]]] = {
    "trained": lambda trained: trained.like,
    "pruned": lambda trained: trained.pruned,
    "zeros": lambda _: torch.zeros_like,
}
