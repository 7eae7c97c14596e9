"""Optimizers of algorithms that update several networks at once."""

from __future__ import annotations

import torch
from torch import nn


def adam(*networks: nn.Module, lr: float, betas: tuple[float, float] = (0.9, 0.999)) -> torch.optim.Adam:
    """One Adam for all parameters of `networks`."""
    parameters = [parameter for network in networks for parameter in network.parameters()]
    return torch.optim.Adam(parameters, lr=lr, betas=betas)
