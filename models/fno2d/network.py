"""The Fourier neural operator in two dimensions (Li et al., 2020, arXiv:2010.08895).

Shape letters: B batch, H and W points of the grid, C channels (the width), M modes in each direction.
"""

import torch
from torch import Tensor, nn
from torch.nn import functional as F


class FNO2d(nn.Module):
    """A field (B, H, W) on a grid to another one (B, H, W). Each point also gets its coordinates."""

    def __init__(self, *, layers: int, width: int, modes: int) -> None:
        super().__init__()
        self.lift = nn.Conv2d(3, width, 1)
        self.spectral = nn.ModuleList(SpectralConv2d(width, modes) for _ in range(layers))
        self.pointwise = nn.ModuleList(nn.Conv2d(width, width, 1) for _ in range(layers))
        self.norms = nn.ModuleList(nn.BatchNorm2d(width) for _ in range(layers))
        self.project = nn.Sequential(nn.Conv2d(width, 128, 1), nn.ReLU(), nn.Conv2d(128, 1, 1))

    def forward(self, field: Tensor) -> Tensor:
        x = self.lift(torch.stack([field, *coordinates(field)], dim=1))  # (B, C, H, W)
        last = len(self.spectral) - 1
        for layer, norm in enumerate(self.norms):
            x = norm(self.spectral[layer](x) + self.pointwise[layer](x))
            x = F.relu(x) if layer < last else x
        projected: Tensor = self.project(x)
        return projected.squeeze(1)


class SpectralConv2d(nn.Module):
    """A linear map of the channels at each of the lowest frequencies. All other frequencies become zero.

    In the first direction there are as many negative frequencies as positive ones. In the second one those of a real
    field follow from the positive ones.
    """

    def __init__(self, width: int, modes: int) -> None:
        super().__init__()
        self.modes = modes
        # Real and imaginary part: casts, optimizers and compilers get real numbers.
        self.positive = nn.Parameter(torch.rand(width, width, modes, modes, 2) / width**2)
        self.negative = nn.Parameter(torch.rand(width, width, modes, modes, 2) / width**2)

    def forward(self, x: Tensor) -> Tensor:
        m, (height, width) = self.modes, x.shape[2:]
        spectrum = torch.fft.rfft2(x.to(self.positive.dtype), norm="ortho")  # (B, C, H, W / 2 + 1)
        mapped = torch.zeros_like(spectrum)
        mapped[:, :, :m, :m] = multiply(spectrum[:, :, :m, :m], self.positive)
        mapped[:, :, -m:, :m] = multiply(spectrum[:, :, -m:, :m], self.negative)
        return torch.fft.irfft2(mapped, s=(height, width), norm="ortho")


def multiply(spectrum: Tensor, weight: Tensor) -> Tensor:
    """(B, C, M, M) and (C, C, M, M, 2) to (B, C, M, M): a matrix of channels for each frequency."""
    return torch.einsum("bimn,iomn->bomn", spectrum, torch.view_as_complex(weight))


def coordinates(field: Tensor) -> tuple[Tensor, Tensor]:
    """Both coordinates of the points, each (B, H, W), from 0 to 1."""
    batch, height, width = field.shape
    y = torch.linspace(0, 1, height, dtype=field.dtype, device=field.device).view(1, -1, 1)
    x = torch.linspace(0, 1, width, dtype=field.dtype, device=field.device).view(1, 1, -1)
    return y.expand(batch, -1, width), x.expand(batch, height, -1)
