"""Whether two sets of processes differ: a test on the logarithms of their medians, and Holm's adjustment."""

from __future__ import annotations

import math
from collections.abc import Sequence
from statistics import NormalDist, fmean, median

import msgspec

from torchzoo.stats import STATED_CONFIDENCE, Estimate, median_estimate, t_coverage, t_quantile, variance

#: From so many processes a side on, those of a case that were measured in turns are tested as pairs. With fewer, the
#: degrees of freedom that pairs cost are worth more than the drift of the machine that they take out. Where a
#: comparison has many cases, these give such degrees back (`moderation`).
PAIRS_FROM = 10


class LogRatio(msgspec.Struct, frozen=True, kw_only=True):
    """log(candidate / base) with its standard error.

    `degrees` are the degrees of freedom of the error; None if the error is taken as known. The error is that of a mean:
    its square times `count` is the variance of a single value (of a pair's difference, or of a process).
    """

    value: float
    error: float
    degrees: int | None
    count: float = 1.0

    def p_value(self, allowance: float = 0.0) -> float:
        """The two-sided probability of this or a larger ratio if the true one is at most `allowance`, either way."""
        beyond = abs(self.value) - allowance
        if beyond <= 0:
            return 1.0
        if self.error == 0:
            return 0.0
        t = beyond / self.error
        return 2 * NormalDist().cdf(-t) if self.degrees is None else max(0.0, 1 - t_coverage(t, self.degrees))

    def least_significant(self, error_rate: float) -> float:
        """The least difference that the test of this ratio finds at that error rate, as a share: 0.012 for 1.2%."""
        t = NormalDist().inv_cdf(1 - error_rate / 2)
        if self.degrees is not None:
            t = t_quantile(1 - error_rate, self.degrees)
        return math.expm1(min(t * self.error, 700.0))

    def interval(self) -> Estimate:
        """Candidate over base with its 95% interval."""
        t = NormalDist().inv_cdf(0.975) if self.degrees is None else t_quantile(STATED_CONFIDENCE, self.degrees)
        low, high = self.value - t * self.error, self.value + t * self.error
        return Estimate(
            value=math.exp(self.value),
            low=math.exp(low),
            high=math.exp(high) if high < 700 else math.inf,
            confidence=STATED_CONFIDENCE,
            count=2,
        )


def log_ratio(
    base: Sequence[Sequence[float]],
    candidate: Sequence[Sequence[float]],
    *,
    assumed_spread: float,
    in_turns: bool = False,
) -> LogRatio | None:
    """The ratio of the candidate's processes to the base's, from the logarithms of the processes' medians.

    With several processes on both sides, the error is that of Welch's t (Biometrika 34, 1947), its degrees of freedom
    rounded down. With several on one side only, their spread is taken for the other side too. With one process on each
    side, nobody knows how much processes differ: the standard deviation `assumed_spread` (of the logarithm) is taken,
    and the interval within each process is added.

    Args:
        base: the values of each process.
        candidate: likewise.
        assumed_spread: of single processes.
        in_turns: whether the processes of the same place on both sides were measured one beside the other. Then, from
            `PAIRS_FROM` of them on, the error is that of the paired t: what slows both of a pair down is no noise.

    Returns:
        None if a single process has a single value: then nothing can be said.
    """
    logs = [[math.log(median(values)) for values in side] for side in (base, candidate)]
    counts = [len(side) for side in logs]
    value = fmean(logs[1]) - fmean(logs[0])
    if max(counts) == 1:
        errors = [log_error(side[0]) for side in (base, candidate)]
        if None in errors:
            return None
        within = sum(error * error for error in errors if error is not None)
        return LogRatio(value=value, error=math.sqrt(2 * assumed_spread**2 + within), degrees=None)
    count = processes_count(*counts)
    if min(counts) == 1:
        many = max(logs, key=len)
        error = math.sqrt(variance(many) / count)
        return LogRatio(value=value, error=error, degrees=len(many) - 1, count=count)
    if in_turns and counts[0] == counts[1] >= PAIRS_FROM:
        return _of_pairs(*logs)
    parts = [variance(side) / len(side) for side in logs]
    spread = sum(part * part / (count - 1) for part, count in zip(parts, counts, strict=True))
    degrees = sum(parts) ** 2 / spread if spread > 0 else min(counts) - 1
    return LogRatio(value=value, error=math.sqrt(sum(parts)), degrees=max(1, math.floor(degrees)), count=count)


def processes_count(base: int, candidate: int) -> float:
    """`LogRatio.count` of two sides of so many processes, which are not in pairs."""
    return 1 / (1 / base + 1 / candidate)


def pair_ratio(base: Sequence[Sequence[float]], candidate: Sequence[Sequence[float]]) -> LogRatio | None:
    """The ratio of processes in turns, with the error of the paired t; None where there are no two pairs or more."""
    if len(base) != len(candidate) or len(base) < 2:
        return None
    return _of_pairs(*([math.log(median(values)) for values in side] for side in (base, candidate)))


def _of_pairs(base: Sequence[float], candidate: Sequence[float]) -> LogRatio:
    differences = [now - was for was, now in zip(base, candidate, strict=True)]
    error = math.sqrt(variance(differences) / len(differences))
    return LogRatio(value=fmean(differences), error=error, degrees=len(differences) - 1, count=len(differences))


def log_error(values: Sequence[float]) -> float | None:
    """The standard error of the logarithm of one process's median, from its interval. None for a single value."""
    own = median_estimate(values)
    if own.count < 2:
        return None
    return math.log(own.high / own.low) / (2 * NormalDist().inv_cdf((1 + own.confidence) / 2))


def holm(p_values: Sequence[float]) -> list[float]:
    """p-values adjusted for the number of tests, in the order given.

    If every test whose adjusted p-value is below alpha is called a difference, then with probability 1 - alpha all of
    these calls are right. The step-down method of Holm (Scandinavian Journal of Statistics 6, 1979) holds however the
    tests depend on each other.
    """
    adjusted = [1.0] * len(p_values)
    highest = 0.0
    order = sorted(range(len(p_values)), key=lambda index: p_values[index])
    for rank, index in enumerate(order):
        highest = max(highest, min(1.0, (len(p_values) - rank) * p_values[index]))
        adjusted[index] = highest
    return adjusted
