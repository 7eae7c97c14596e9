"""Gaussian diffusion on a cosine schedule, with learned variances (Nichol and Dhariwal, 2021, arXiv:2102.09672).

The schedule is computed from the time, on the device and in 32 bits; there are no tables. Shape letters: B batch, ...
any further dimensions of the data x. Times (B,) count from 0, clean data, to 1000, noise.
"""

import math
from itertools import pairwise

import torch
from torch import Tensor
from torch.nn import functional as F

STEPS = 1000
OFFSET = 0.008  # of the cosine, so that the first steps are not too small
LEAST_SIGNAL = 1e-8


def random_times(x: Tensor) -> Tensor:
    """One time for each of x (B, ...), uniform in 1 to `STEPS`."""
    return torch.randint(1, STEPS + 1, (len(x),), device=x.device)


def sampling_times(count: int) -> list[tuple[int, int]]:
    """`count` strides of equal length, each from a time to an earlier one, the last one to 0."""
    times = [round(STEPS * (count - step) / count) for step in range(count + 1)]
    return list(pairwise(times))


def signal(time: Tensor, x: Tensor) -> Tensor:
    """The signal's part of the variance (alpha bar) at `time` (B,), shaped (B, 1, ...) to go with x (B, ...)."""
    phase = (time.to(torch.promote_types(x.dtype, torch.float32)) / STEPS + OFFSET) / (1 + OFFSET) * (math.pi / 2)
    start = math.cos(OFFSET / (1 + OFFSET) * (math.pi / 2))
    part = (phase.cos() / start).square().clamp(LEAST_SIGNAL, 1.0)
    return part.view(-1, *[1] * (x.ndim - 1))


def add_noise(x: Tensor, noise: Tensor, time: Tensor) -> Tensor:
    part = signal(time, x)
    return (part.sqrt() * x + (1 - part).sqrt() * noise).to(x.dtype)


def remove_noise(noisy: Tensor, noise: Tensor, time: Tensor) -> Tensor:
    """The clean data, if `noise` is what was added."""
    part = signal(time, noisy)
    return (noisy - (1 - part).sqrt() * noise) / part.sqrt()


def posterior(noisy: Tensor, clean: Tensor, time: Tensor, earlier: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """The distribution of the data at an earlier time, given both ends: its mean (B, ...) and two log-variances.

    They are (B, 1, ...): the posterior's own, and that of the noise added in between. The learned one is between them.

    At time 0 the posterior has no variance; the one at time 1 is used instead.
    """
    part, earlier_part = signal(time, noisy), signal(earlier, noisy)
    kept = part / earlier_part
    mean = earlier_part.sqrt() * (1 - kept) / (1 - part) * clean + kept.sqrt() * (1 - earlier_part) / (1 - part) * noisy
    late, soon = signal(time.clamp(min=2), noisy), signal(earlier.clamp(min=1), noisy)
    variance = (1 - late / soon) * (1 - soon) / (1 - late)
    return mean, variance.log(), (1 - kept).log()


def learned_log_variance(output: Tensor, least: Tensor, most: Tensor) -> Tensor:
    """A log-variance between two others, at the place that a network's output in about [-1, 1] gives."""
    fraction = (output + 1) / 2
    return fraction * most + (1 - fraction) * least


def hybrid_loss(output: Tensor, clean: Tensor, noise: Tensor, time: Tensor) -> Tensor:
    """The loss of a network that predicts noise and variance: `output` (B, 2 C, H, W), the others (B, C, H, W).

    The squared error teaches the noise, and the variational bound, in bits, the variance alone. The bound compares two
    posteriors: that of the clean data, and that of the data that the predicted noise gives.
    """
    predicted_noise, variance = output.chunk(2, dim=1)
    noisy = add_noise(clean, noise, time)
    true_mean, least, most = posterior(noisy, clean, time, time - 1)
    guess = remove_noise(noisy, predicted_noise.detach(), time)
    mean, _, _ = posterior(noisy, guess, time, time - 1)
    log_variance = learned_log_variance(variance, least, most)

    divergence = 0.5 * (log_variance - least + (least - log_variance).exp() - 1)
    divergence = divergence + 0.5 * (true_mean - mean).square() * (-log_variance).exp()
    first = (time == 1).view(-1, 1, 1, 1)  # the last step back: how likely the pixels' own values are
    bound = torch.where(first, negative_log_likelihood(clean, mean, log_variance), divergence) / math.log(2.0)
    return F.mse_loss(predicted_noise, noise) + bound.mean()


def negative_log_likelihood(pixels: Tensor, mean: Tensor, log_variance: Tensor) -> Tensor:
    """The negative log-likelihood of pixels, 256 values in [-1, 1], under a normal distribution."""
    deviation = (0.5 * log_variance).exp()
    upper = torch.special.ndtr((pixels - mean + 1 / 255) / deviation)
    lower = torch.special.ndtr((pixels - mean - 1 / 255) / deviation)
    upper = torch.where(pixels > 0.999, 1.0, upper)
    lower = torch.where(pixels < -0.999, 0.0, lower)
    return -(upper - lower).clamp(min=1e-12).log()


def ancestral_step(mean: Tensor, log_variance: Tensor, earlier: Tensor) -> Tensor:
    """The data at an earlier time, drawn from the posterior of this mean and log-variance (Ho et al., 2020).

    The log-variance may be a learned one.
    """
    spread = (0.5 * log_variance).exp() * (earlier > 0).view(-1, *[1] * (mean.ndim - 1))
    return mean + spread * torch.randn_like(mean)


def implicit_step(noise: Tensor, clean: Tensor, earlier: Tensor) -> Tensor:
    """The data at an earlier time along the deterministic path of DDIM (Song, Meng and Ermon, 2020)."""
    return add_noise(clean, noise, earlier)
