"""Figures and their intervals, from raw samples: medians, paired speedups, outliers, geometric means."""

from __future__ import annotations

import math
import zlib
from collections.abc import Iterable, Sequence
from functools import lru_cache
from statistics import NormalDist, fmean, median, variance
from typing import Any

import msgspec

from torchzoo.record import BackToBack, Block, Breakdown, Energy

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


class Shares(msgspec.Struct, frozen=True, kw_only=True):
    """Of the profiled steps' wall time, all steps together, as fractions that add up to 1.

    Each interval is that of the steps' own shares, widened where it does not hold the share of all together.
    """

    active: Estimate
    movement: Estimate
    idle: Estimate


def shares(breakdown: Breakdown) -> Shares | None:
    """None where the profiler could not tell."""
    steps = breakdown.steps
    if not steps:
        return None
    active, movement = [step.active_s for step in steps], [step.movement_s for step in steps]
    idle = [step.wall_s - step.active_s - step.movement_s for step in steps]
    walls = [step.wall_s for step in steps]
    return Shares(active=_share(active, walls), movement=_share(movement, walls), idle=_share(idle, walls))


def _share(parts: Sequence[float], walls: Sequence[float]) -> Estimate:
    together = sum(parts) / sum(walls)
    own = median_estimate([part / wall for part, wall in zip(parts, walls, strict=True)])
    return msgspec.structs.replace(own, value=together, low=min(own.low, together), high=max(own.high, together))


def step_energy_j(energy: Energy) -> Estimate:
    """Joules per step of all windows together, where the counter's coarse ticks cancel; its interval is theirs."""
    windows = median_estimate([window.energy_j / window.steps for window in energy.windows])
    return msgspec.structs.replace(windows, value=energy.energy_j / energy.steps)


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


class Resampled(msgspec.Struct, frozen=True, kw_only=True):
    """One case's ratio as the geometric mean wants it: drawn once, averaged in many groups of cases."""

    cluster: str  # cases of one cluster (a model's two modes) are drawn together: they are not independent
    log_value: float
    log_medians: Any  # (resamples,): of bootstrap samples of the case's ratios
    count: int  # of ratios
    own: Estimate | None = None  # of several processes: what the interval is where the case stands alone


def generator_for(name: str) -> Any:
    """NumPy's random numbers for what has this name: a case is drawn the same beside whatever others it stands."""
    import numpy as np

    return np.random.default_rng(zlib.crc32(name.encode()))


def resampled(ratios: Sequence[float], *, cluster: str, generator: Any, resamples: int = 2000) -> Resampled:
    """The median of a case's ratios, and the medians of bootstrap samples of them.

    The median of n values drawn with replacement is x(ceil(n U)) of the sorted ones, U the median of n uniforms; so
    U is drawn (Beta(k, n + 1 - k); for an even n the next one is the least of the n - k that are left), not n values.

    Raises:
        ValueError: no ratios, or one that is not positive.
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
    return Resampled(
        cluster=cluster, log_value=math.log(median(ratios)), log_medians=np.log(medians), count=len(ratios)
    )


def resampled_processes(
    processes: Sequence[Sequence[float]], *, cluster: str, generator: Any, resamples: int = 2000
) -> Resampled:
    """The same of a case that several processes measured: processes are drawn anew, and ratios within each.

    The case counts once, by the geometric mean of its processes' medians. A bootstrap of a few processes is too narrow
    on its own, so that a case that stands alone has the interval of `processes_estimate`; among other cases, what
    differs between them holds what differs between their processes, too.

    Raises:
        ValueError: as `resampled`.
    """
    import numpy as np

    drawn = [resampled(ratios, cluster=cluster, generator=generator, resamples=resamples) for ratios in processes]
    if len(drawn) == 1:
        return drawn[0]
    chosen = generator.integers(len(drawn), size=(len(drawn), resamples))
    log_medians = np.take_along_axis(np.stack([one.log_medians for one in drawn]), chosen, axis=0).mean(axis=0)
    return Resampled(
        cluster=cluster,
        log_value=fmean(one.log_value for one in drawn),
        log_medians=log_medians,
        count=sum(one.count for one in drawn),
        own=processes_estimate(processes),
    )


def resampled_ratio(one: Resampled, other: Resampled) -> Resampled:
    """One over other, of two sides that were measured apart."""
    return Resampled(
        cluster=one.cluster,
        log_value=one.log_value - other.log_value,
        log_medians=one.log_medians - other.log_medians,
        count=one.count + other.count,
    )


def geomean_of(cases: Sequence[Resampled], *, seed: int = 0) -> Estimate:
    """Geometric mean over cases, each counting once.

    The interval (95%, percentile bootstrap) resamples the clusters and, within each case, its ratios: what other models
    and another run would have given. One cluster has no variation between: its own interval is all that there is.

    Raises:
        ValueError: no case.
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
    return Estimate(value=value, low=float(low), high=float(high), confidence=0.95, count=count)


def t_coverage(t: float, degrees: int) -> float:
    """P(|T| <= t) of Student's t with whole degrees of freedom (Abramowitz & Stegun, 1964, 26.7.3 and 26.7.4)."""
    angle = math.atan(t / math.sqrt(degrees))
    cosine2 = math.cos(angle) ** 2
    is_odd = degrees % 2 == 1
    term = math.cos(angle) if is_odd else 1.0
    total = 0.0
    for number in range(degrees // 2):  # the series of cosines, each term from the one before
        total += term
        term *= cosine2 * ((2 * number + 2) / (2 * number + 3) if is_odd else (2 * number + 1) / (2 * number + 2))
    covered = math.sin(angle) * total
    return 2 / math.pi * (angle + covered) if is_odd else covered


@lru_cache(maxsize=1024)
def t_quantile(coverage: float, degrees: int) -> float:
    """The t with P(|T| <= t) = `coverage`, by bisection: 12.71 for 95% and one degree of freedom."""
    low, high = 0.0, 1.0
    while t_coverage(high, degrees) < coverage:
        high *= 2
    while high - low > 1e-9 * high:
        middle = (low + high) / 2
        low, high = (middle, high) if t_coverage(middle, degrees) < coverage else (low, middle)
    return high


def processes_estimate(processes: Sequence[Sequence[float]]) -> Estimate:
    """One figure from several processes that measured the same: what differs between them is part of the interval.

    Args:
        processes: the positive values of each (block means, or ratios of quads).

    The value is the geometric mean of the processes' medians, the interval Student's t on their logarithms: a median
    holds its process's own deviation and what is left of the noise within it, so the spread of medians is the
    spread of both (a nested random-effects model; Searle, Casella & McCulloch, Variance Components, 1992, 3.3). Few
    processes are honestly wide: t is 12.7 for two, 4.3 for three, 2.8 for five. Simulated (`tests/test_repeats.py`) the
    interval holds 95 times in 100 where processes differ lognormally, for 2, 3 and 5 of them. Where they fall in two
    groups 10% apart it holds 79, 75 and 94 times, and where one in five takes half as long again 65 times for five:
    in the other trials all processes were of one kind, and none could know of the other. (Order statistics
    assume nothing, but reach 95% only from six processes on.)

    One process has its own interval, from order statistics.

    Raises:
        ValueError: no process, or one without values.
    """
    if len(processes) < 2:
        return median_estimate(processes[0] if processes else [])
    logs = [math.log(median_estimate(values).value) for values in processes]
    center = fmean(logs)
    half_width = t_quantile(STATED_CONFIDENCE, len(logs) - 1) * math.sqrt(variance(logs) / len(logs))
    return Estimate(
        value=math.exp(center),
        low=math.exp(center - half_width),
        high=math.exp(center + half_width) if half_width < 700 else math.inf,
        confidence=STATED_CONFIDENCE,
        count=len(logs),
    )


class LogRatio(msgspec.Struct, frozen=True, kw_only=True):
    """log(candidate / base) with its standard error; `degrees` of freedom of that error, None: it is taken as known."""

    value: float
    error: float
    degrees: int | None

    def p_value(self, allowance: float = 0.0) -> float:
        """Two-sided, that this or more is seen where the true one is `allowance` at most, either way."""
        beyond = abs(self.value) - allowance
        if beyond <= 0:
            return 1.0
        if self.error == 0:
            return 0.0
        t = beyond / self.error
        return 2 * NormalDist().cdf(-t) if self.degrees is None else max(0.0, 1 - t_coverage(t, self.degrees))

    def interval(self) -> Estimate:
        """Candidate over base, with its 95% interval."""
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
    base: Sequence[Sequence[float]], candidate: Sequence[Sequence[float]], *, assumed_spread: float
) -> LogRatio | None:
    """How the candidate's processes compare with the base's, by their medians' logarithms.

    Several processes on both sides: Welch's t (Biometrika 34, 1947), degrees rounded down. On one side only: its spread
    is taken for the other's, too. One process on each side can't know how much processes differ: the standard deviation
    `assumed_spread` (of the logarithm) stands for it, beside what each process's own interval says. None where
    a single process has a single value: then there is no telling.
    """
    logs = [[math.log(median(values)) for values in side] for side in (base, candidate)]
    counts = [len(side) for side in logs]
    value = fmean(logs[1]) - fmean(logs[0])
    if max(counts) == 1:
        errors = [_log_error(side[0]) for side in (base, candidate)]
        if None in errors:
            return None
        within = sum(error * error for error in errors if error is not None)
        return LogRatio(value=value, error=math.sqrt(2 * assumed_spread**2 + within), degrees=None)
    if min(counts) == 1:
        many = max(logs, key=len)
        error = math.sqrt(variance(many) * (1 / counts[0] + 1 / counts[1]))
        return LogRatio(value=value, error=error, degrees=len(many) - 1)
    parts = [variance(side) / len(side) for side in logs]
    spread = sum(part * part / (count - 1) for part, count in zip(parts, counts, strict=True))
    degrees = sum(parts) ** 2 / spread if spread > 0 else min(counts) - 1
    return LogRatio(value=value, error=math.sqrt(sum(parts)), degrees=max(1, math.floor(degrees)))


def _log_error(values: Sequence[float]) -> float | None:
    """Standard error of the logarithm of a process's median, from its interval; None for a single value."""
    own = median_estimate(values)
    if own.count < 2:
        return None
    return math.log(own.high / own.low) / (2 * NormalDist().inv_cdf((1 + own.confidence) / 2))


def holm(p_values: Sequence[float]) -> list[float]:
    """p-values adjusted so that all that fall below alpha are right together with probability 1 - alpha at least.

    The step-down method of Holm (Scandinavian Journal of Statistics 6, 1979), valid however the tests depend on each
    other.
    """
    adjusted = [1.0] * len(p_values)
    highest = 0.0
    order = sorted(range(len(p_values)), key=lambda index: p_values[index])
    for rank, index in enumerate(order):
        highest = max(highest, min(1.0, (len(p_values) - rank) * p_values[index]))
        adjusted[index] = highest
    return adjusted


def geomean(samples: Sequence[Sequence[float]]) -> Estimate:
    """Geometric mean over cases of the median of each case's ratios; each case a cluster of its own (`geomean_of`).

    Raises:
        ValueError: no case, one without ratios, or a ratio that is not positive.
    """
    import numpy as np

    generator = np.random.default_rng(0)
    return geomean_of(
        [resampled(ratios, cluster=str(number), generator=generator) for number, ratios in enumerate(samples)]
    )


def quotient(base: Estimate, other: Estimate) -> Estimate:
    """Base over other, measured apart: it holds where both intervals do, so with the sum of their doubts."""
    return Estimate(
        value=base.value / other.value,
        low=base.low / other.high,
        high=base.high / other.low,
        confidence=max(0.0, base.confidence + other.confidence - 1),
        count=min(base.count, other.count),
    )
