"""The errors of few processes, sharper by what all cases of a comparison tell of the noise.

Five pairs of processes tell little of a case's noise: their standard deviation is wrong by a factor of two often enough
that a test must expect it. But where the cases of one comparison were measured on one machine in one hour, their noise
is alike. So is that of the time over eager's between runs: it is mostly that of the samples of a process. Moderated t
statistics (Smyth, Statistical Applications in Genetics and Molecular Biology 3(1), 2004) use that. The variances of all
cases tell how large the noise of a case mostly is, and how far cases differ in it. That counts as some more degrees of
freedom for each case. If the cases differ much, these are few, and each case's own processes decide.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from statistics import fmean

import msgspec

from torchzoo.analysis.significance import LogRatio
from torchzoo.stats import variance

#: Fewer cases tell too little of how much their noise differs.
CASES_FROM = 10
#: With fewer processes a side, a case's own variance is so unsure that all cases look alike, and then too little noise
#: is expected of the noisiest: with two of the kept runs of launch-bound steps, two processes a side gave a false alarm
#: in 27 and 43 of 100 comparisons, where Welch's t gave none.
PROCESSES_FROM = 4
#: What the other cases tell counts at most as much. Few cases can look alike by chance.
MOST_SHARED_DEGREES = 20.0
#: A case whose logarithm of the variance is so many standard deviations above that of the others is not like them. It
#: keeps its own error, and its own few degrees of freedom.
OWN_FROM = 2.0


class SharedNoise(msgspec.Struct, frozen=True, kw_only=True):
    """What is known of the variance of a case's pairs or processes before they are looked at."""

    variance: float
    degrees: float  # of freedom: how sure that is

    def is_beyond(self, own: float, degrees: int) -> bool:
        """Whether a case with that variance of its own, of so many degrees of freedom, is noisier than its like."""
        if own == 0:
            return False
        above = _log_part(own, degrees) - _log_part(self.variance, self.degrees)
        return above > OWN_FROM * math.sqrt(trigamma(degrees / 2) + trigamma(self.degrees / 2))


def moderated(ratios: Sequence[LogRatio | None], processes: Sequence[int]) -> list[LogRatio | None]:
    """The ratios with errors that all of them tell together.

    A ratio of fewer than `PROCESSES_FROM` processes stays as it is. So do all if fewer than `CASES_FROM` have enough.

    Args:
        ratios: one for each case; None where nothing is known.
        processes: how many each has, on the side that has fewer.
    """
    enough = [count >= PROCESSES_FROM for count in processes]
    noise = shared_noise([ratio for ratio, is_enough in zip(ratios, enough, strict=True) if ratio and is_enough])
    if noise is None:
        return list(ratios)
    return [
        _moderated(ratio, noise) if ratio and is_enough else ratio
        for ratio, is_enough in zip(ratios, enough, strict=True)
    ]


def shared_noise(ratios: Sequence[LogRatio]) -> SharedNoise | None:
    """The variance that cases mostly have, by the moments of its logarithm (Smyth, 2004, 6.2); None for too few."""
    known = [(_single_variance(ratio), ratio.degrees) for ratio in ratios if ratio.degrees and ratio.error > 0]
    if len(known) < CASES_FROM:
        return None
    logs = [_log_part(one, degrees) for one, degrees in known]
    by_chance = fmean(trigamma(degrees / 2) for _, degrees in known)
    degrees = _shared_degrees(variance(logs) - by_chance)
    return SharedNoise(variance=math.exp(fmean(logs) - _log_part(1.0, degrees)), degrees=degrees)


def _log_part(one: float, degrees: float) -> float:
    """The logarithm of a variance, less what chance makes of it on average with so many degrees of freedom."""
    return math.log(one) - digamma(degrees / 2) + math.log(degrees / 2)


def _shared_degrees(spread: float) -> float:
    """The degrees of freedom d for which trigamma(d / 2) is the variance of the logarithms beyond chance."""
    low, high = 0.0, MOST_SHARED_DEGREES
    if spread <= trigamma(high / 2):
        return high
    while high - low > 1e-6:
        middle = (low + high) / 2
        low, high = (middle, high) if trigamma(middle / 2) > spread else (low, middle)
    return high


def _moderated(ratio: LogRatio, noise: SharedNoise) -> LogRatio:
    own = _single_variance(ratio)
    if not ratio.degrees or noise.is_beyond(own, ratio.degrees):
        return ratio
    degrees = noise.degrees + ratio.degrees
    both = (noise.degrees * noise.variance + ratio.degrees * own) / degrees
    error = math.sqrt(both / ratio.count)
    return LogRatio(value=ratio.value, error=error, degrees=math.floor(degrees), count=ratio.count)


def _single_variance(ratio: LogRatio) -> float:
    """The variance of single pairs' differences, or of single processes."""
    return ratio.error**2 * ratio.count


def digamma(x: float) -> float:
    """The derivative of log(gamma(x)), x > 0 (Abramowitz & Stegun, 1964, 6.3.5 and 6.3.18)."""
    below = 0.0
    while x < 10:
        below -= 1 / x
        x += 1
    square = 1 / x**2
    return below + math.log(x) - 0.5 / x - square * (1 / 12 - square * (1 / 120 - square / 252))


def trigamma(x: float) -> float:
    """The derivative of `digamma` (Abramowitz & Stegun, 1964, 6.4.6 and 6.4.12)."""
    below = 0.0
    while x < 10:
        below += 1 / x**2
        x += 1
    square = 1 / x**2
    return below + 1 / x + square / 2 + square / x * (1 / 6 - square * (1 / 30 - square / 42))
