"""Compute figures and their intervals from raw samples: medians, paired speedups, shares, outliers, Student's t."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from functools import lru_cache
from statistics import fmean, median

import msgspec

from torchzoo.record import CANDIDATE_VARIANT, EAGER_VARIANT, BackToBack, Block, Breakdown, Energy

#: The confidence that an interval is computed for. A pass computes its interval repeatedly, and stops when it is
#: narrow, which costs up to 2% of the coverage (`tests/measure/test_measure.py` simulates it), so 95% are left.
NOMINAL_CONFIDENCE = 0.97
STATED_CONFIDENCE = 0.95
_NOMINAL_Z = 2.170090  # the normal quantile of NOMINAL_CONFIDENCE, two-sided
#: The fewest models or processes of a mean with an interval. For fewer, Student's t gives useless widths.
LEAST_OF_A_MEAN = 4
#: With fewer values than this, no interval of a median holds at 95%.
VALUES_FOR_95 = 6


class Estimate(msgspec.Struct, frozen=True, kw_only=True):
    """A value, and an interval [low, high] that contains the true value with probability `confidence`.

    Few samples can't give 95%. Then `confidence` is the level that they give: 75% for three samples.
    """

    value: float
    low: float
    high: float
    confidence: float
    count: int
    of: str = "samples"  # unit of `count`; for `range`, `low` and `high` are the least and the most

    @property
    def has_interval(self) -> bool:
        """Whether the interval has a use, unlike that of one or two samples, or of a mean of too few values."""
        return self.confidence > 0.5

    @property
    def counted(self) -> str:
        """The count with its unit: `2 models`."""
        return f"{self.count} {self.of if self.count != 1 else _ONE[self.of]}"

    @property
    def why_no_interval(self) -> str:
        """The reason why there is no interval: `2 models: too few for an interval`."""
        return f"{self.counted}: too few for an interval"

    @property
    def relative_half_width(self) -> float:
        """Half of the interval's width over the value; infinite without an interval."""
        return (self.high - self.low) / 2 / self.value if self.has_interval else math.inf

    def excludes(self, value: float) -> bool:
        return self.has_interval and not self.low <= value <= self.high

    def surely_excludes(self, value: float) -> bool:
        """Whether the interval excludes the value and holds at 95%, which that of a few samples does not."""
        return self.confidence >= STATED_CONFIDENCE and self.excludes(value)


_ONE = {"samples": "sample", "processes": "process", "runs": "run", "models": "model"}


def without_interval(value: float, count: int, of: str) -> Estimate:
    """The estimate of a mean of fewer than `LEAST_OF_A_MEAN` values."""
    return Estimate(value=value, low=value, high=value, confidence=0.0, count=count, of=of)


@lru_cache(maxsize=4096)
def _rank(count: int, confidence: float) -> tuple[int, float]:
    """The largest k for which [x(k), x(n+1-k)] covers the median with at least `confidence`, and its exact coverage.

    The coverage of order statistics is exact for any continuous distribution: 1 - 2 P(Binomial(n, 1/2) < k). If even
    the extremes do not reach `confidence`, k is 1 and the coverage is below `confidence`.
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
        ValueError: there are no values.
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
    """The rank and its coverage for a large count, by the normal approximation, since 0.5**n would underflow."""
    return math.floor((count - _NOMINAL_Z * math.sqrt(count)) / 2), NOMINAL_CONFIDENCE


def block_times_s(blocks: Iterable[Block], variant: str) -> list[float]:
    """The mean step time of each block of `variant`. A mean includes work that is done only in every n-th step."""
    return [fmean(block.samples_s) for block in blocks if block.variant == variant]


def latency_s(blocks: Iterable[Block], variant: str) -> Estimate:
    """The median over blocks of the time of a synchronised step."""
    return median_estimate(block_times_s(blocks, variant))


def quad_ratios(blocks: Sequence[Block]) -> list[float]:
    """Eager time over candidate time in each quad, A B B A or B A A B. An unfinished last quad is left out.

    A quad's ratio is (A1 + A2) / (B1 + B2), in which a drift that is linear over the quad cancels.
    """
    ratios = []
    for start in range(0, len(blocks) - 3, 4):
        quad = blocks[start : start + 4]
        ratios.append(sum(block_times_s(quad, EAGER_VARIANT)) / sum(block_times_s(quad, CANDIDATE_VARIANT)))
    return ratios


def speedup(blocks: Sequence[Block]) -> Estimate:
    """The median of the quads' ratios. Above 1, the candidate is faster than eager."""
    return median_estimate(quad_ratios(blocks))


def steps_per_s(runs: Sequence[BackToBack]) -> Estimate:
    """The steps per second without a synchronisation after each step."""
    return median_estimate([run.steps / run.elapsed_s for run in runs])


class Shares(msgspec.Struct, frozen=True, kw_only=True):
    """The shares of the wall time of all profiled steps, which add up to 1.

    Each interval is that of the median of the single steps' shares, widened to contain the value if necessary.
    """

    active: Estimate
    movement: Estimate
    communication: Estimate | None  # None if no collective ran
    idle: Estimate


def shares(breakdown: Breakdown) -> Shares | None:
    """The shares of a breakdown; None if the profiler recorded no steps."""
    steps = breakdown.steps
    if not steps:
        return None
    walls = [step.wall_s for step in steps]
    communication = [step.communication_s for step in steps]
    idle = [step.wall_s - step.active_s - step.movement_s - step.communication_s for step in steps]
    return Shares(
        active=_share([step.active_s for step in steps], walls),
        movement=_share([step.movement_s for step in steps], walls),
        communication=_share(communication, walls) if any(communication) else None,
        idle=_share(idle, walls),
    )


def _share(parts: Sequence[float], walls: Sequence[float]) -> Estimate:
    together = sum(parts) / sum(walls)
    own = median_estimate([part / wall for part, wall in zip(parts, walls, strict=True)])
    return msgspec.structs.replace(own, value=together, low=min(own.low, together), high=max(own.high, together))


def step_energy_j(energy: Energy) -> Estimate:
    """Joules per step over all windows together, where the counter's coarse ticks cancel.

    The interval is that of the median of the single windows.
    """
    windows = median_estimate([window.energy_j / window.steps for window in energy.windows])
    return msgspec.structs.replace(windows, value=energy.energy_j / energy.steps)


def bus_factor(name: str, world: int) -> float:
    """The factor that turns the bytes of a collective over its time into a rate that compares with the links' speed.

    The factor is 1 for collectives that move all bytes over one link, such as broadcast. The formulas are nccl-tests':
    https://github.com/NVIDIA/nccl-tests/blob/master/doc/PERFORMANCE.md
    """
    if name == "all_reduce":
        return 2 * (world - 1) / world
    return (world - 1) / world if name in ("all_gather", "reduce_scatter", "alltoall") else 1.0


def outlier_count(values: Sequence[float], threshold: float = 3.5) -> int:
    """The number of values with a modified z-score on the MAD above `threshold` (Iglewicz & Hoaglin, 1993).

    Outliers are only counted, never dropped.
    """
    if not values:
        return 0
    center = median(values)
    mad = median(abs(value - center) for value in values)
    return sum(0.6745 * abs(value - center) > threshold * mad for value in values) if mad > 0 else 0


def expected_half_width(values: Sequence[float], count: int) -> float:
    """The expected relative half-width of the interval of the median of `count` such values.

    The standard error of the median of normal values is the square root of pi / 2 times that of their mean.
    """
    return _NOMINAL_Z * math.sqrt(math.pi / 2 * variance(values) / count) / median(values)


def time_to_reach(half_width: float, values: Sequence[float], took_s: float) -> float:
    """Return about how many seconds of such values the interval of their median needs for a relative half-width.

    The half-width shrinks with the square root of time. Infinite for a single value.

    Args:
        half_width: the target, relative to the median.
        values: those of the first `took_s` seconds.
        took_s: see `values`.
    """
    estimate = median_estimate(values)
    if estimate.confidence >= STATED_CONFIDENCE:
        return took_s * (estimate.relative_half_width / half_width) ** 2
    if len(values) == 1:
        return math.inf
    return took_s / len(values) * max(VALUES_FOR_95, (expected_half_width(values, 1) / half_width) ** 2)


def relative_mad(values: Sequence[float]) -> float:
    """The median absolute deviation over the median."""
    center = median(values)
    return median(abs(value - center) for value in values) / center


def t_coverage(t: float, degrees: int) -> float:
    """P(|T| <= t) of Student's t with whole degrees of freedom (Abramowitz & Stegun, 1964, 26.7.3 and 26.7.4)."""
    angle = math.atan(t / math.sqrt(degrees))
    cosine2 = math.cos(angle) ** 2
    is_odd = degrees % 2 == 1
    term = math.cos(angle) if is_odd else 1.0
    total = 0.0
    for number in range(degrees // 2):  # a series of powers of the cosine
        total += term
        term *= cosine2 * ((2 * number + 2) / (2 * number + 3) if is_odd else (2 * number + 1) / (2 * number + 2))
    covered = math.sin(angle) * total
    return 2 / math.pi * (angle + covered) if is_odd else covered


@lru_cache(maxsize=1024)
def t_quantile(coverage: float, degrees: int) -> float:
    """The t for which P(|T| <= t) is `coverage`, found by bisection: 12.71 for 95% and one degree of freedom."""
    low, high = 0.0, 1.0
    while t_coverage(high, degrees) < coverage:
        high *= 2
    while high - low > 1e-9 * high:
        middle = (low + high) / 2
        low, high = (middle, high) if t_coverage(middle, degrees) < coverage else (low, middle)
    return high


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


def holm(p_values: Sequence[float]) -> list[float]:
    """p-values adjusted for the number of tests, in the order given.

    If every test whose adjusted p-value is below alpha is called a difference, all of these calls are right with
    probability 1 - alpha. The step-down method of Holm (Scandinavian Journal of Statistics 6, 1979) holds for any
    dependence between the tests.
    """
    adjusted = [1.0] * len(p_values)
    highest = 0.0
    order = sorted(range(len(p_values)), key=lambda index: p_values[index])
    for rank, index in enumerate(order):
        highest = max(highest, min(1.0, (len(p_values) - rank) * p_values[index]))
        adjusted[index] = highest
    return adjusted


def variance(values: Sequence[float]) -> float:
    """The variance of at least two values, much faster than by `statistics`, which computes in fractions."""
    center = fmean(values)
    return math.fsum((value - center) ** 2 for value in values) / (len(values) - 1)


def processes_value(medians: Sequence[float]) -> float:
    """The value of `processes_estimate`, without its interval, from the median of each process."""
    return medians[0] if len(medians) == 1 else math.exp(fmean(map(math.log, medians)))


def processes_estimate(processes: Sequence[Sequence[float]]) -> Estimate:
    """The figure of several processes that measured the same case. The interval includes their differences.

    Args:
        processes: the positive values of each process (means of blocks, or ratios of quads).

    The value is the geometric mean of the processes' medians. The interval is Student's t on the logarithms of these
    medians. A median contains the deviation of its process and the rest of the noise within the process, so the spread
    of the medians covers both (a nested random-effects model; Searle, Casella & McCulloch, Variance Components, 1992,
    3.3). Fewer than four processes give no interval: t is 12.7 for two processes and 4.3 for three.

    How often the interval of five processes holds the true value was simulated (`tests/analysis/test_repeats.py`):

    - Processes differ lognormally: 95 times in 100.
    - Processes fall in two groups that are 10% apart: 94 times.
    - One process in five takes 1.5 times as long: 65 times.

    In the failed trials, all processes were of one kind, so that the other kind could not be seen. Order statistics
    need no assumption, but they reach 95% only with six processes or more.

    A single process gets its own interval, from order statistics.

    Raises:
        ValueError: there is no process, or a process has no values.
    """
    if len(processes) < 2:
        return median_estimate(processes[0] if processes else [])
    logs = [math.log(median_estimate(values).value) for values in processes]
    center = fmean(logs)
    if len(logs) < LEAST_OF_A_MEAN:
        return without_interval(math.exp(center), len(logs), "processes")
    half_width = t_quantile(STATED_CONFIDENCE, len(logs) - 1) * math.sqrt(variance(logs) / len(logs))
    return Estimate(
        value=math.exp(center),
        low=math.exp(center - half_width),
        high=math.exp(center + half_width) if half_width < 700 else math.inf,
        confidence=STATED_CONFIDENCE,
        count=len(logs),
        of="processes",
    )


def inverse(estimate: Estimate) -> Estimate:
    """The estimate of 1 / the value. The ends of the interval change places."""
    return msgspec.structs.replace(estimate, value=1 / estimate.value, low=1 / estimate.high, high=1 / estimate.low)


def scaled(estimate: Estimate, factor: float, offset: float = 0.0) -> Estimate:
    """The estimate in another unit: its values times a positive `factor`, plus `offset`."""
    value, low, high = (one * factor + offset for one in (estimate.value, estimate.low, estimate.high))
    return msgspec.structs.replace(estimate, value=value, low=low, high=high)


def quotient(base: Estimate, other: Estimate) -> Estimate:
    """The ratio of base to other, two values that were measured independently.

    The interval contains the true ratio when both intervals contain their true values, so the probabilities of error
    add up.
    """
    fewer = min(base, other, key=lambda one: one.count)
    return Estimate(
        value=base.value / other.value,
        low=base.low / other.high,
        high=base.high / other.low,
        confidence=max(0.0, base.confidence + other.confidence - 1),
        count=fewer.count,
        of=fewer.of,
    )
