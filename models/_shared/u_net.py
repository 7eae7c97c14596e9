"""The forward pass of U-Nets (Ronneberger, Fischer and Brox, 2015, arXiv:1505.04597)."""

from __future__ import annotations

from torch import Tensor, nn


class UNet(nn.Module):
    """Down through `stem` and `down`, then up through `up` and `head`. A subclass builds these parts.

    Each part of `up` joins what comes from below with the features that its level had on the way down.
    """

    stem: nn.Module
    down: nn.ModuleList
    up: nn.ModuleList
    head: nn.Module

    def forward(self, x: Tensor) -> Tensor:
        x = self.stem(x)
        skips = []
        for down in self.down:
            skips.append(x)
            x = down(x)
        for up, skip in zip(self.up, reversed(skips), strict=True):
            x = up(x, skip)
        outputs: Tensor = self.head(x)
        return outputs
