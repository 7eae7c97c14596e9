"""Compute means over cases, with intervals over models: the values that other models of the same kind could have given.

The interval is Student's t on the values of clusters, since the modes of one model are not independent. The interval
includes the noise within the cases, which their values contain. Fewer than four models have none. A bootstrap would be
too narrow: a nominal 95% percentile bootstrap over 8 models holds the true mean 80 to 88 times in 100, and over 5
models 79 to 87 times (`tests/analysis/test_means.py` simulates Student's t).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from statistics import NormalDist, fmean

import msgspec

from torchzoo import stats
from torchzoo.stats import (
    LEAST_OF_A_MEAN,
    STATED_CONFIDENCE,
    Estimate,
    processes_estimate,
    t_quantile,
    variance,
    without_interval,
)


class CaseRatio(msgspec.Struct, frozen=True, kw_only=True):
    """A ratio of one case that counts in means."""

    cluster: str  # cases of one cluster (the modes of a model) are not independent
    own: Estimate  # the ratio with its interval


def case_ratio(processes: Sequence[Sequence[float]], *, cluster: str) -> CaseRatio:
    """A case's ratio from the ratios of its processes, combined by `processes_estimate`."""
    if not processes or any(not ratios or min(ratios) <= 0 for ratios in processes):
        raise ValueError("a geometric mean needs cases with positive values")
    return CaseRatio(cluster=cluster, own=processes_estimate(processes))


def inverse(one: CaseRatio) -> CaseRatio:
    """1 / the ratio."""
    return msgspec.structs.replace(one, own=stats.inverse(one.own))


def quotient(one: CaseRatio, other: CaseRatio) -> CaseRatio:
    """The ratio of `one` to `other`, which were measured independently."""
    return msgspec.structs.replace(one, own=stats.quotient(one.own, other.own))


def at_least_1(one: CaseRatio) -> CaseRatio:
    """The ratio, or 1 if it is less."""
    value, low, high = (max(1.0, end) for end in (one.own.value, one.own.low, one.own.high))
    return msgspec.structs.replace(one, own=msgspec.structs.replace(one.own, value=value, low=low, high=high))


def geomean_of(cases: Sequence[CaseRatio]) -> Estimate:
    """The geometric mean over cases. Each case counts once.

    The interval is Student's t over clusters, by the residuals of a ratio of sums (Cochran, Sampling Techniques, 1977,
    6.4): clusters may have unlike numbers of cases. `count` is the number of clusters.
    """
    if not cases:
        raise ValueError("a geometric mean needs cases with positive values")
    logs: dict[str, list[float]] = {}
    for case in cases:
        logs.setdefault(case.cluster, []).append(math.log(case.own.value))
    center = fmean(math.log(case.own.value) for case in cases)
    if len(logs) < LEAST_OF_A_MEAN:
        return without_interval(math.exp(center), len(logs), "models")
    residuals = [math.fsum(some) - len(some) * center for some in logs.values()]
    error = math.sqrt(math.fsum(one * one for one in residuals) * len(logs) / (len(logs) - 1)) / len(cases)
    half_width = t_quantile(STATED_CONFIDENCE, len(logs) - 1) * error
    return Estimate(
        value=math.exp(center),
        low=math.exp(center - half_width),
        high=math.exp(center + half_width) if center + half_width < 700 else math.inf,
        confidence=STATED_CONFIDENCE,
        count=len(logs),
        of="models",
    )


def geomean(samples: Sequence[Sequence[float]]) -> Estimate:
    """The geometric mean over cases of the median of each case's ratios. Each case is a cluster of its own."""
    return geomean_of([case_ratio([ratios], cluster=str(number)) for number, ratios in enumerate(samples)])


def mean(values: Sequence[float], *, of: str = "models", least: float = -math.inf, most: float = math.inf) -> Estimate:
    """The arithmetic mean of models or samples, with Student's t. The interval ends at the least and the greatest
    possible mean.
    """
    if not values:
        raise ValueError("a mean needs values")
    value, count = fmean(values), len(values)
    if count < LEAST_OF_A_MEAN:
        return without_interval(value, count, of)
    half_width = t_quantile(STATED_CONFIDENCE, count - 1) * math.sqrt(variance(values) / count)
    low, high = max(least, value - half_width), min(most, value + half_width)
    return Estimate(value=value, low=low, high=high, confidence=STATED_CONFIDENCE, count=count, of=of)


def share(values: Sequence[float]) -> Estimate:
    """The mean of values from 0 to 1, such as whether each model works, with Wilson's score interval (1927).

    The interval holds for values that are all 0 or 1, and has a width even if all are equal. For values in between, as
    of a model with one of two cases, it is too wide rather than too narrow.
    """
    if not values:
        raise ValueError("a mean needs values")
    value, count = fmean(values), len(values)
    if count < LEAST_OF_A_MEAN:
        return without_interval(value, count, "models")
    z = NormalDist().inv_cdf((1 + STATED_CONFIDENCE) / 2)
    shrink = 1 + z * z / count
    middle = (value + z * z / (2 * count)) / shrink
    half_width = z * math.sqrt(value * (1 - value) / count + (z / (2 * count)) ** 2) / shrink
    low, high = max(0.0, middle - half_width), min(1.0, middle + half_width)
    return Estimate(value=value, low=low, high=high, confidence=STATED_CONFIDENCE, count=count, of="models")
