"""The random changes of sources that Demucs is trained with (Défossez et al., 2019, arXiv:1911.13254, section 5).

All of it is drawn and done on the device. Shape letters: B batch, S sources, C channels, L samples.
"""

import torch
from torch import Tensor


def augment(sources: Tensor, longest_shift: int) -> Tensor:
    """Sources (B, S, C, L) to (B, S, C, L - longest_shift): shifted, flipped in sign and channels, mixed anew."""
    sources = shift(sources, longest_shift)
    sources = torch.where(coins(sources), sources, -sources)
    sources = torch.where(coins(sources), sources, sources.flip(2))
    return remix(sources)


def coins(sources: Tensor) -> Tensor:
    """(B, S, 1, 1), true or false with equal probability."""
    return torch.rand(*sources.shape[:2], 1, 1, device=sources.device) < 0.5


def shift(sources: Tensor, longest: int) -> Tensor:
    """Each source from a random sample on, so that all are shorter by `longest`."""
    batch, count, channels, length = sources.shape
    offsets = torch.randint(longest, (batch, count, 1, 1), device=sources.device)
    places = torch.arange(length - longest, device=sources.device) + offsets  # (B, S, 1, L - longest)
    return sources.gather(3, places.expand(-1, -1, channels, -1))


def remix(sources: Tensor) -> Tensor:
    """Each kind of source in a random order over the batch: songs of drums, bass, voice from different songs."""
    batch, count = sources.shape[:2]
    songs = torch.rand(batch, count, device=sources.device).argsort(dim=0)  # (B, S)
    return sources[songs, torch.arange(count, device=sources.device)]
