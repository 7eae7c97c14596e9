"""Geometric means over cases, with bootstrap intervals."""

from __future__ import annotations

import math
import zlib
from collections.abc import Sequence
from statistics import fmean, median
from typing import Any

import msgspec

from torchzoo import stats
from torchzoo.stats import Estimate, processes_estimate


class BootstrapSamples(msgspec.Struct, frozen=True, kw_only=True):
    """Bootstrap samples of one case's ratio. They are drawn once and used in the mean of every group of cases."""

    cluster: str  # cases of one cluster (the modes of a model) are not independent: they are drawn together
    log_value: float
    log_medians: Any  # (resamples,): the logarithm of the median of each bootstrap sample
    count: int  # how many ratios there are
    own: Estimate | None = None  # if several processes measured the case: its interval where it stands alone


def generator_for(name: str) -> Any:
    """A random generator that depends on the name alone, so a case has the same samples in every group."""
    import numpy as np

    return np.random.default_rng(zlib.crc32(name.encode()))


def bootstrap(ratios: Sequence[float], *, cluster: str, generator: Any, resamples: int = 2000) -> BootstrapSamples:
    """The median of a case's ratios, and the medians of bootstrap samples of them.

    The median of n values drawn with replacement is x(ceil(n U)) of the sorted values, where U is the median of n
    uniform numbers. So U is drawn instead of n values: it has the distribution Beta(k, n + 1 - k). For an even n the
    next uniform number is drawn as well: it is the least of the n - k that are left.

    Raises:
        ValueError: there are no ratios, or one is not positive.
    """
    import numpy as np

    if not ratios or min(ratios) <= 0:
        raise ValueError("a geometric mean needs cases with positive values")
    ordered, count = np.sort(np.asarray(ratios, dtype=float)), len(ratios)
    k = (count + 1) // 2
    middle = generator.beta(k, count + 1 - k, size=resamples)
    medians = ordered[np.minimum((middle * count).astype(int), count - 1)]
    if count % 2 == 0:
        above = middle + (1 - middle) * generator.beta(1, count - k, size=resamples)
        medians = (medians + ordered[np.minimum((above * count).astype(int), count - 1)]) / 2
    return BootstrapSamples(
        cluster=cluster, log_value=math.log(median(ratios)), log_medians=np.log(medians), count=len(ratios)
    )


def bootstrap_processes(
    processes: Sequence[Sequence[float]], *, cluster: str, generator: Any, resamples: int = 2000
) -> BootstrapSamples:
    """The same for a case that several processes measured. Processes are drawn, and ratios within each process.

    The case counts once, by the geometric mean of its processes' medians. A bootstrap over a few processes is too
    narrow. So a case that stands alone has the interval of `processes_estimate`. In a mean over many cases, the spread
    between the cases includes the spread between their processes.

    Raises:
        ValueError: as `bootstrap`.
    """
    import numpy as np

    drawn = [bootstrap(ratios, cluster=cluster, generator=generator, resamples=resamples) for ratios in processes]
    if len(drawn) == 1:
        return drawn[0]
    chosen = generator.integers(len(drawn), size=(len(drawn), resamples))
    log_medians = np.take_along_axis(np.stack([one.log_medians for one in drawn]), chosen, axis=0).mean(axis=0)
    return BootstrapSamples(
        cluster=cluster,
        log_value=fmean(one.log_value for one in drawn),
        log_medians=log_medians,
        count=sum(one.count for one in drawn),
        own=processes_estimate(processes),
    )


def inverse(samples: BootstrapSamples) -> BootstrapSamples:
    """The samples of 1 / the ratio."""
    own = None if samples.own is None else stats.inverse(samples.own)
    return msgspec.structs.replace(samples, log_value=-samples.log_value, log_medians=-samples.log_medians, own=own)


def at_least_1(samples: BootstrapSamples) -> BootstrapSamples:
    """The samples of the ratio, or of 1 where it is less."""
    import numpy as np

    own = samples.own
    if own is not None:
        value, low, high = (max(1.0, one) for one in (own.value, own.low, own.high))
        own = msgspec.structs.replace(own, value=value, low=low, high=high)
    return msgspec.structs.replace(
        samples, log_value=max(0.0, samples.log_value), log_medians=np.maximum(0.0, samples.log_medians), own=own
    )


def bootstrap_ratio(one: BootstrapSamples, other: BootstrapSamples) -> BootstrapSamples:
    """The samples of `one` over `other`, which were measured independently."""
    return BootstrapSamples(
        cluster=one.cluster,
        log_value=one.log_value - other.log_value,
        log_medians=one.log_medians - other.log_medians,
        count=one.count + other.count,
    )


def geomean_of(cases: Sequence[BootstrapSamples], *, seed: int = 0) -> Estimate:
    """The geometric mean over cases. Each case counts once.

    The interval is a 95% percentile bootstrap. It draws clusters, and ratios within each case, so it shows what other
    models and another run could have given. With a single cluster, only the variation within its cases is known. Few
    clusters can't give 95%, as in `mean`.

    Raises:
        ValueError: there is no case.
    """
    import numpy as np

    if not cases:
        raise ValueError("a geometric mean needs cases with positive values")
    if len(cases) == 1 and cases[0].own is not None:
        return cases[0].own
    names = {name: number for number, name in enumerate(sorted({case.cluster for case in cases}))}
    resamples = len(cases[0].log_medians)
    sums, sizes = np.zeros((len(names), resamples)), np.zeros((len(names), 1))
    for case in cases:
        sums[names[case.cluster]] += case.log_medians
        sizes[names[case.cluster]] += 1
    drawn = np.random.default_rng(seed).integers(len(names), size=(len(names), resamples))
    means = np.exp(np.take_along_axis(sums, drawn, axis=0).sum(axis=0) / sizes[:, 0][drawn].sum(axis=0))
    low, high = np.quantile(means, [0.025, 0.975])
    value = math.exp(fmean(case.log_value for case in cases))
    count = sum(case.count for case in cases)
    confidence = confidence_of(len(names) if len(names) > 1 else count)
    return Estimate(value=value, low=float(low), high=float(high), confidence=confidence, count=count)


def geomean(samples: Sequence[Sequence[float]]) -> Estimate:
    """The geometric mean over cases of the median of each case's ratios. Each case is a cluster of its own.

    Raises:
        ValueError: there is no case, a case has no ratios, or a ratio is not positive.
    """
    import numpy as np

    generator = np.random.default_rng(0)
    return geomean_of(
        [bootstrap(ratios, cluster=str(number), generator=generator) for number, ratios in enumerate(samples)]
    )


def mean(values: Sequence[float], *, seed: int = 0, resamples: int = 2000) -> Estimate:
    """The arithmetic mean, of models or of steps, with a percentile bootstrap; one value has no interval.

    Few values can't give 95%: their bootstrap goes from the least to the greatest at most, which holds the middle of a
    symmetric distribution with a probability of 1 - 2 / 2**n. The confidence says so.

    Raises:
        ValueError: there is no value.
    """
    import numpy as np

    if not values:
        raise ValueError("a mean needs values")
    value, count = fmean(values), len(values)
    if count == 1:
        return Estimate(value=value, low=value, high=value, confidence=0.0, count=1)
    drawn = np.random.default_rng(seed).integers(count, size=(resamples, count))
    low, high = np.quantile(np.asarray(values, dtype=float)[drawn].mean(axis=1), [0.025, 0.975])
    return Estimate(value=value, low=float(low), high=float(high), confidence=confidence_of(count), count=count)


def confidence_of(values: int) -> float:
    """The confidence of a bootstrap interval over so many values: 95%, or what few values can give."""
    return min(stats.STATED_CONFIDENCE, 1 - 2.0 ** (1 - values))
