"""Figures and their intervals, from raw samples: medians, paired speedups, outliers, geometric means."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from functools import lru_cache
from statistics import fmean, median

import msgspec

from torchzoo.record import BackToBack, Block

#: What intervals aim at, to hold 95% in the end: a pass looks again and again and stops when its interval is narrow,
#: which costs up to 2% of the coverage (`tests/test_measure.py` simulates it).
NOMINAL_CONFIDENCE = 0.97
STATED_CONFIDENCE = 0.95

EAGER_VARIANT = "eager"
CANDIDATE_VARIANT = "candidate"


class Estimate(msgspec.Struct, frozen=True, kw_only=True):
    """A value with the interval [low, high] that holds the true one with probability `confidence`.

    Few samples can't give 95%: `confidence` then says what they do give (two samples: 50%).
    """

    value: float
    low: float
    high: float
    confidence: float
    count: int

    @property
    def relative_half_width(self) -> float:
        """Half of the interval's width over the value; infinite below two samples."""
        return math.inf if self.count < 2 else (self.high - self.low) / 2 / self.value

    def excludes(self, value: float) -> bool:
        return not self.low <= value <= self.high


@lru_cache(maxsize=4096)
def _rank(count: int, confidence: float) -> tuple[int, float]:
    """The largest k for which [x(k), x(n+1-k)] covers the median with at least `confidence`; and its true coverage.

    The coverage of order statistics is exact for any continuous distribution: 1 - 2 P(Binomial(n, 1/2) < k).
    Where not even the extremes reach `confidence`, k = 1 and the coverage says so.
    """
    below = 0.5**count  # P(Binomial < 1)
    k, term = 1, below
    while k < count // 2:
        term *= (count - k + 1) / k
        if 1 - 2 * (below + term) < confidence:
            break
        below += term
        k += 1
    return k, max(0.0, 1 - 2 * below)


def median_estimate(values: Sequence[float]) -> Estimate:
    """The median with its distribution-free 95% interval (order statistics; David & Nagaraja, Order Statistics, 7.1).

    Raises:
        ValueError: no values.
    """
    if not values:
        raise ValueError("no samples to estimate from")
    ordered = sorted(values)
    k, coverage = _rank(len(ordered), NOMINAL_CONFIDENCE) if len(ordered) <= 1000 else _normal_rank(len(ordered))
    return Estimate(
        value=median(ordered),
        low=ordered[k - 1],
        high=ordered[-k],
        confidence=min(coverage, STATED_CONFIDENCE),
        count=len(ordered),
    )


def _normal_rank(count: int) -> tuple[int, float]:
    """The same ranks where the binomial is as good as normal (and 0.5**n would underflow)."""
    return math.floor((count - 2.170090 * math.sqrt(count)) / 2), NOMINAL_CONFIDENCE


def block_times_s(blocks: Iterable[Block], variant: str) -> list[float]:
    """Mean step time of each block of `variant`: the mean, so that work done only every n-th step counts."""
    return [fmean(block.samples_s) for block in blocks if block.variant == variant]


def latency_s(blocks: Iterable[Block], variant: str) -> Estimate:
    """Median over blocks of the time of one synchronised step."""
    return median_estimate(block_times_s(blocks, variant))


def quad_ratios(blocks: Sequence[Block]) -> list[float]:
    """Eager time over candidate time in each A B B A quad.

    A quad's ratio is (A1 + A2) / (B1 + B2): a drift that is linear over the quad cancels.
    """
    ratios = []
    for start in range(0, len(blocks) - 3, 4):
        a1, b1, b2, a2 = (fmean(block.samples_s) for block in blocks[start : start + 4])
        ratios.append((a1 + a2) / (b1 + b2))
    return ratios


def speedup(blocks: Sequence[Block]) -> Estimate:
    """Eager time over candidate time: the median of the paired ratios. Above 1, the candidate is faster."""
    return median_estimate(quad_ratios(blocks))


def steps_per_s(runs: Sequence[BackToBack]) -> Estimate:
    """Steps per second without a synchronisation after each."""
    return median_estimate([run.steps / run.elapsed_s for run in runs])


def outlier_count(values: Sequence[float], threshold: float = 3.5) -> int:
    """Values whose modified z-score on the MAD exceeds `threshold` (Iglewicz & Hoaglin, 1993). None is ever dropped."""
    if not values:
        return 0
    center = median(values)
    mad = median(abs(value - center) for value in values)
    return sum(0.6745 * abs(value - center) > threshold * mad for value in values) if mad > 0 else 0


def relative_mad(values: Sequence[float]) -> float:
    """Median absolute deviation over the median."""
    center = median(values)
    return median(abs(value - center) for value in values) / center


def geomean(samples: Sequence[Sequence[float]], *, resamples: int = 2000, seed: int = 0) -> Estimate:
    """Geometric mean over cases of the median of each case's ratios.

    The interval (95%, percentile bootstrap) resamples the cases and, within each, its ratios: what other models and
    another run would have given. One case has no variation between cases: its own interval is all that there is.

    Raises:
        ValueError: no case, one without ratios, or a ratio that is not positive.
    """
    import numpy as np

    if not samples or not all(samples) or min(map(min, samples)) <= 0:
        raise ValueError("a geometric mean needs cases with positive values")
    value = math.exp(fmean(math.log(median(ratios)) for ratios in samples))
    generator = np.random.default_rng(seed)
    medians = np.empty((len(samples), resamples))
    for index, ratios in enumerate(samples):
        drawn = generator.integers(len(ratios), size=(resamples, len(ratios)))
        medians[index] = np.median(np.asarray(ratios)[drawn], axis=1)
    cases = generator.integers(len(samples), size=(len(samples), resamples))
    means = np.exp(np.take_along_axis(np.log(medians), cases, axis=0).mean(axis=0))
    low, high = np.quantile(means, [0.025, 0.975])
    return Estimate(value=value, low=float(low), high=float(high), confidence=0.95, count=sum(map(len, samples)))
