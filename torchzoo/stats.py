"""Figures and their intervals, from raw samples: medians, paired speedups, outliers, geometric means."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from functools import lru_cache
from statistics import fmean, median, variance

import msgspec

from torchzoo.record import BackToBack, Block, Breakdown, Energy

#: What intervals aim at, to hold 95% in the end: a pass looks again and again and stops when its interval is narrow,
#: which costs up to 2% of the coverage (`tests/test_measure.py` simulates it).
NOMINAL_CONFIDENCE = 0.97
STATED_CONFIDENCE = 0.95


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


def inverse(estimate: Estimate) -> Estimate:
    """1 / the value; the ends of the interval change places."""
    return msgspec.structs.replace(estimate, value=1 / estimate.value, low=1 / estimate.high, high=1 / estimate.low)


def quotient(base: Estimate, other: Estimate) -> Estimate:
    """Base over other, measured apart: it holds where both intervals do, so with the sum of their doubts."""
    return Estimate(
        value=base.value / other.value,
        low=base.low / other.high,
        high=base.high / other.low,
        confidence=max(0.0, base.confidence + other.confidence - 1),
        count=min(base.count, other.count),
    )
