"""Judge pairs of figures, by the noise model and the thresholds of all comparisons.

`judge` takes the figures of a case and metric in a base and in a candidate, and says whether they differ. `compare`,
`ab`, `watch` and `bisect` pair the figures of two runs; `history regressions` pairs those of several runs of each side;
`noise` pairs a run with itself. The commands differ in nothing else.

**What noise is.** The samples of one process agree far better than two processes do: memory layout, clocks and other
users of the machine differ from process to process. So the unit of all tests is the process (with several runs a side:
the run), and its value is the median of its samples. Times are compared by their logarithms: a difference is a ratio.

**When a time is slower or faster.** Two conditions hold together:

1. The difference is at least the threshold. Where the noise between processes is known, the threshold is
   `LEAST_THRESHOLD`, since the test below demands more of noisy cases. Where each side has one process, it is
   `THRESHOLD`, the 7% of TorchBench (Hao et al., 2023, arXiv:2304.14226; pytorch/benchmark#488).
2. A test finds the difference significant. The test is Welch's t between the processes of both sides, or the
   paired t from `PAIRS_FROM` processes on that were measured in turns. With several processes on one side only, their
   spread stands for both sides. With one process a side, an assumed spread (`ASSUMED_SPREAD` ...) stands for what is
   not known, and the interval within each process is added. Holm's method adjusts the p-values over all times of a
   comparison, so that at most one in a hundred comparisons without any change names a case (`FAMILY_WISE_ERROR`).

A time is the same if the 95% interval of the ratio lies within the threshold (`THRESHOLD` by default) either way. All
other times are inconclusive. (A rank test would need no distribution, but with five processes a side its p-value is
never below 0.008, which is too little evidence for twenty cases.)

**Shared variance.** Five pairs of processes say little about a case's noise, so Student's t must allow for much more.
Cases of one comparison that were measured in turns, on one machine in one hour, have similar noise. So have times over
eager's, whose noise is mostly that of the samples. For these, the variances of all cases show the usual noise of a case
and how far cases differ in it, which gives each case some more degrees of freedom (moderated t; Smyth, Statistical
Applications in Genetics and Molecular Biology 3(1), 2004). The more cases differ, the fewer. A case far noisier than
the others keeps its own error.

**Host slack.** The time of a compilation, and of a step that waits for the host, depends on the speed of the host. A
loop of plain Python, timed between the samples, measures that speed. The part of a difference that the loop explains is
slack: the test and the threshold apply to the rest. Eager, measured in turns with the candidate, slows down as well, so
the time over eager's is judged without slack, and a remark says how eager changed. Other processes on a device take an
unknown part of the time: if they ran during all processes of one side only, the slack is infinite.

**Device time** is the time in which the device works in a step. The host's speed does not change it, so there is no
slack, and runs of unlike hosts can be compared in it.

**Host time** is the host's work for a step, in seconds of a reference host, so it has no slack either.

**Memory and counts** hardly vary: they are more or less if the medians differ by the threshold (of counts:
`LEAST_THRESHOLD`), memory also by `MEMORY_FLOOR_BYTES`, and the ranges of the processes do not overlap. A compiler that
chooses by timing makes another program in each process, so counts are judged from four processes a side on.

**Wider rules** propose changes that an A/B then judges: the levels and change points of nights, and the steps of a
bisection. Their thresholds are here, too. A wrong proposal costs only time.
"""

from __future__ import annotations

import enum
import math
from collections.abc import Iterable, Sequence
from statistics import NormalDist, fmean, median
from typing import Any, NamedTuple

import msgspec

from torchzoo import stats
from torchzoo.analysis.run_figures import COUNTS, REPRODUCIBLE, Metric, RunFigure
from torchzoo.case import Case
from torchzoo.stats import STATED_CONFIDENCE, Estimate

# --- thresholds of verdicts ---

#: The least difference that matters if the noise between processes is not known, and if it is.
THRESHOLD, LEAST_THRESHOLD = 0.07, 0.01
#: The share of comparisons without any change in which at least one case is called slower or faster.
FAMILY_WISE_ERROR = 0.01
MEMORY_FLOOR_BYTES = 2**20  # smaller differences never count, whatever their share
COUNTS_VARY = "counts of another process may differ, too: four processes a side tell"

#: The standard deviation (of the logarithm) between processes that is assumed if each side has one process. Between
#: runs of one kind of machine in docs/results, 97 in 100 cases differed by less than 2% to 5% in steps that the device
#: bounds, 15% to 20% in steps that wait for the host, and 16% to 30% in the CPU time of first steps.
ASSUMED_SPREAD_DEVICE_BOUND = 0.02
ASSUMED_SPREAD = 0.10
#: The assumed spread of the time over eager's if steps wait for the host: 97 in 100 cases differed by less than 16%.
ASSUMED_SPREAD_OVER_EAGER = 0.05

#: From so many processes a side on, processes that were measured in turns are tested as pairs. With fewer, the degrees
#: of freedom that pairs cost are worth more than the drift of the machine that they remove.
PAIRS_FROM = 10
HOST_LOOP_NOISE = 0.02  # smaller differences of the host's loop between processes are noise of a quiet machine

#: Processes of each side for a verdict on a time.
REPEATS = 5

# --- shared variance ---

#: The fewest cases that share a variance: fewer don't show how much their noise differs.
CASES_FROM = 10
#: The fewest processes a side of a case with shared variance. With fewer, a case's own variance is so uncertain that
#: all cases look alike, and too little noise is expected of the noisiest: with two, a quarter to half of the
#: comparisons of launch-bound runs in docs/results had false alarms, where Welch's t had none.
PROCESSES_FROM = 4
#: The most degrees of freedom that other cases add. Few cases can look alike by chance.
MOST_SHARED_DEGREES = 20.0
#: A case whose logarithm of the variance is so many standard deviations above the others' keeps its own error.
OWN_FROM = 2.0

# --- wider rules: changes of a nightly run (`history.proposals`) ---

#: The usual value is the median of at most so many earlier nights. Fewer than the second have no useful spread.
USUAL_NIGHTS, LEAST_NIGHTS = 6, 4
#: The least share by which a value is worse than usual: with fewer than LEAST_NIGHTS earlier nights, and with more.
FEW_NIGHTS_THRESHOLD, LEVEL_THRESHOLD = 0.05, 0.02
#: The least excess over the usual value, in standard deviations (by the median distance) of the earlier nights.
LEVEL_SIGMAS = 3.0
#: A change is proposed if its first night is among the last so many, tonight included.
RECENT_NIGHTS = 3

# --- wider rules: change points of a series (`analysis.change_points`) ---

#: The most values that are searched at once, as in Hunter.
CHANGE_POINT_WINDOW = 50
#: The greatest p-value of a change point. The tests are many and not corrected: each window is split where it looks
#: worst. So p is not the share of constant series in which a change is found. 0.0001 finds almost as many steps as
#: Hunter's 0.001, in far fewer constant series (docs/results/2026-11-22-change-points.md).
CHANGE_POINT_P_VALUE = 1e-4
#: The weak pass accepts p-values up to so many times larger. A change near another is weak until both are found.
WEAKER = 10.0
#: The fewest values on each side of a change point. A single outlier is no change, unless it is so large that it
#: dominates the piece that it shares with the next value.
LEAST_LENGTH = 2

# --- wider rules: versions of a bisection (`history.ab_evidence`) ---

#: A version has the change if the whole interval of its ratio lies beyond this share of the change (of the logarithm),
#: and lacks it if the whole interval lies below.
SHARE_OF_CHANGE = 0.5
#: After a culprit, less than this share of the change counts as none.
LEAST_LEFT = 0.25


class Verdict(enum.StrEnum):
    FASTER = "faster"
    SLOWER = "slower"
    LESS = "less"
    MORE = "more"
    SAME = "same"
    INCONCLUSIVE = "inconclusive"


class FigurePair(NamedTuple):
    """The figures of a case and metric in the runs of the base and of the candidate, all of the same basis."""

    case: Case
    metric: Metric
    base: Sequence[RunFigure]
    candidate: Sequence[RunFigure]
    doubt: str = ""  # another possible cause of a difference in memory, which makes the finding inconclusive

    @property
    def of_processes(self) -> bool:
        """Whether the values are of processes, since each side is one run; else they are of runs."""
        return len(self.base) == len(self.candidate) == 1

    @property
    def values(self) -> tuple[Sequence[float], Sequence[float]]:
        """The values of each side that are compared. With several runs, the noise includes their differences."""
        if self.of_processes:
            return self.base[0].processes, self.candidate[0].processes
        return [one.value for one in self.base], [one.value for one in self.candidate]

    @property
    def is_device_bound(self) -> bool:
        """Whether the device bounds the step of all processes of both sides."""
        return all(one.is_device_bound for one in (*self.base, *self.candidate))


class Finding(msgspec.Struct, frozen=True, kw_only=True):
    """The values of a case and metric on both sides (seconds, bytes or a ratio), their ratio, and the verdict."""

    case: Case
    metric: Metric
    verdict: Verdict
    base: float
    candidate: float
    ratio: Estimate  # candidate over base; for memory, the interval is the range of the repeats
    p_value: float | None  # adjusted for the number of tests in the comparison; None if there was no test
    same_within: float  # `same` says that the figures differ by less than this share
    sees: float | None  # the least difference that the test could have found, as a share; None if there was no test
    base_processes: int
    candidate_processes: int
    remark: str = ""

    @property
    def is_notable(self) -> bool:
        """Whether the verdict is that the sides differ."""
        return self.verdict not in (Verdict.SAME, Verdict.INCONCLUSIVE)

    @property
    def is_open(self) -> bool:
        """Whether the finding is inconclusive although the two figures are further apart than `same` allows."""
        is_far = max(self.ratio.value, 1 / self.ratio.value) >= 1 + self.same_within
        return self.verdict is Verdict.INCONCLUSIVE and is_far


def pairs_of(case: Case, base: Iterable[RunFigure], candidate: Iterable[RunFigure]) -> list[FigurePair]:
    """The comparable figures of one case in two runs, in the order of the base's.

    The time over eager's is left out if the device bounds all steps, where it says no more than the time.
    """
    other = {(one.metric, one.basis): one for one in candidate}
    pairs = [
        FigurePair(case, one.metric, (one,), (other[one.metric, one.basis],))
        for one in base
        if (one.metric, one.basis) in other
    ]
    return [pair for pair in pairs if not (pair.metric is Metric.OVER_EAGER and pair.is_device_bound)]


def judge(pairs: Sequence[FigurePair], threshold: float | None = None, *, in_turns: bool = False) -> list[Finding]:
    """Judge each pair, in order. All pairs of a comparison must be given at once, because of Holm's method.

    `threshold` is the least difference that matters, as a share; None: chosen for each case by its noise. With
    `in_turns`, processes at equal places of both sides were measured one right after the other.
    """
    times = [pair for pair in pairs if pair.metric.is_time]
    tests = [_tested(pair, ratio) for pair, ratio in zip(times, _ratios(times, in_turns=in_turns), strict=True)]
    p_values = stats.holm([1.0 if one.ratio is None else one.ratio.p_value(one.slack) for one in tests])
    error_rate = FAMILY_WISE_ERROR / max(1, len(tests))
    found = iter([_time_finding(one, p, threshold, error_rate) for one, p in zip(tests, p_values, strict=True)])
    findings = [next(found) if pair.metric.is_time else _ranged_finding(pair, threshold) for pair in pairs]
    return [_with_causes(one, findings) for one in findings]


# --- times ---


class _Tested(NamedTuple):
    """A time that has no verdict yet: the verdict depends on the p-values of all tests."""

    pair: FigurePair
    ratio: LogRatio | None
    slack: float  # the part of the logarithm that the host's speed, or other processes on the device, may explain
    remark: str


def _tested(pair: FigurePair, ratio: LogRatio | None) -> _Tested:
    slack, remark = 0.0, ""
    if pair.metric is Metric.OVER_EAGER:
        remark = _what_eager_did(pair)
    elif ratio is not None and not pair.is_device_bound and pair.metric is not Metric.HOST_TIME:
        loops_s = [
            [one.host_loop_s for one in side if one.host_loop_s is not None] for side in (pair.base, pair.candidate)
        ]
        slack, remark = host_slack(ratio.value, *loops_s)
    remarks = [remark]
    shared = [all(one.always_shared for one in side) for side in (pair.base, pair.candidate)]
    if shared[0] != shared[1]:
        slack = math.inf
        which = "base" if shared[0] else "candidate"
        remarks.append(f"other processes used the device, or had it open, while the {which} was measured")
    if ratio is None:
        remarks.append("one sample in each process: nothing can be said")
    elif ratio.degrees is None:
        remarks.append(f"one process each, assumed to differ by {100 * _assumed_spread(pair):.0f}%")
    return _Tested(pair, ratio, slack, "; ".join(filter(None, remarks)))


def host_slack(value: float, base_loops_s: Sequence[float], candidate_loops_s: Sequence[float]) -> tuple[float, str]:
    """The part of a difference that the host's own speed explains, and a remark about it.

    `value` is the logarithm of candidate over base. A host whose speed changed the other way explains nothing.
    """
    if not base_loops_s or not candidate_loops_s:
        return math.inf, "the host's own speed was not recorded"
    host = math.log(median(candidate_loops_s) / median(base_loops_s))
    if abs(host) <= HOST_LOOP_NOISE or host * value <= 0:
        return 0.0, ""
    return abs(host), f"the host's own loop took {math.exp(host):.2f} times as long: so much is not counted"


def _what_eager_did(pair: FigurePair) -> str:
    sides_s = [[one.eager_s for one in side if one.eager_s is not None] for side in (pair.base, pair.candidate)]
    if not all(sides_s):
        return ""
    base_s, candidate_s = map(stats.processes_value, sides_s)
    return f"eager's own steps took {candidate_s / base_s:.2f} times as long"


def _time_finding(one: _Tested, p_value: float, threshold: float | None, error_rate: float) -> Finding:
    """The finding of a test; `error_rate` is the error rate of each test in the comparison."""
    pair, ratio = one.pair, one.ratio
    base, candidate = map(stats.processes_value, pair.values)
    same_within = THRESHOLD if threshold is None else threshold
    if threshold is None:
        threshold = THRESHOLD if ratio is None or ratio.degrees is None else LEAST_THRESHOLD
    sees, verdict = None, Verdict.INCONCLUSIVE
    interval = Estimate(value=candidate / base, low=0.0, high=math.inf, confidence=0.0, count=1)
    if ratio is not None:
        sees = math.expm1(math.log1p(max(threshold, ratio.least_significant(error_rate))) + one.slack)
        interval, near = ratio.interval(), math.log1p(same_within)
        if abs(ratio.value) - one.slack >= math.log1p(threshold) and p_value < FAMILY_WISE_ERROR:
            verdict = Verdict.SLOWER if ratio.value > 0 else Verdict.FASTER
        elif math.exp(-near) < interval.low and interval.high < math.exp(near):
            verdict = Verdict.SAME
        interval = _without_confidence_of_few(pair, interval)
    return _finding(
        pair,
        verdict,
        interval,
        same_within=same_within,
        p_value=None if ratio is None else p_value,
        sees=sees,
        remark=one.remark,
    )


def _finding(pair: FigurePair, verdict: Verdict, ratio: Estimate, **more: Any) -> Finding:
    value = stats.processes_value if pair.metric.is_time else median
    base, candidate = (float(value(side)) for side in pair.values)
    counts = map(len, pair.values)
    return Finding(
        case=pair.case,
        metric=pair.metric,
        verdict=verdict,
        base=base,
        candidate=candidate,
        ratio=ratio,
        base_processes=next(counts),
        candidate_processes=next(counts),
        **more,
    )


def _without_confidence_of_few(pair: FigurePair, interval: Estimate) -> Estimate:
    """The interval, without its confidence if a side with several values has too few for an interval to be shown."""
    fewest, most = sorted(map(len, pair.values))
    if fewest >= stats.LEAST_OF_A_MEAN or most == 1:
        return interval
    of = "processes" if pair.of_processes else "runs"
    return msgspec.structs.replace(interval, confidence=0.0, count=fewest, of=of)


def _with_causes(finding: Finding, findings: Sequence[Finding]) -> Finding:
    """Name in the remark of a slower or faster step what moved of the device's work and of the host's."""
    if finding.metric not in (Metric.LATENCY, Metric.OVER_EAGER) or not finding.is_notable:
        return finding
    moved = [
        _moved(one) for one in findings if one.case == finding.case and one.metric in REPRODUCIBLE and one.is_notable
    ]
    if not moved:
        return finding
    return msgspec.structs.replace(finding, remark="; ".join(filter(None, [finding.remark, *moved])))


def _moved(finding: Finding) -> str:
    """`host time +12.0%` or `operators 212 to 236`."""
    name = finding.metric.replace("_", " ")
    if finding.metric in COUNTS:
        return f"{name} {finding.base:,.0f} to {finding.candidate:,.0f}"
    return f"{name} {finding.ratio.value - 1:+.1%}"


# --- memory and counts ---


def _ranged_finding(pair: FigurePair, threshold: float | None) -> Finding:
    is_count = pair.metric in COUNTS
    if threshold is None:
        threshold = LEAST_THRESHOLD if is_count else THRESHOLD
    values = pair.values
    base, candidate = (float(median(side)) for side in values)
    ratio, remark = candidate / base, ""
    if (
        abs(candidate - base) < (1 if is_count else MEMORY_FLOOR_BYTES)
        or math.exp(abs(math.log(ratio))) < 1 + threshold
    ):
        verdict = Verdict.SAME
    elif not (max(values[0]) < min(values[1]) or max(values[1]) < min(values[0])):
        verdict, remark = Verdict.INCONCLUSIVE, "the repeats' ranges overlap"
    elif is_count and min(map(len, values)) < stats.LEAST_OF_A_MEAN:
        verdict, remark = Verdict.INCONCLUSIVE, COUNTS_VARY
    elif pair.doubt:
        verdict, remark = Verdict.INCONCLUSIVE, pair.doubt
    else:
        verdict = Verdict.MORE if ratio > 1 else Verdict.LESS
    low, high = min(values[1]) / max(values[0]), max(values[1]) / min(values[0])
    spread = Estimate(value=ratio, low=low, high=high, confidence=0.0, count=min(map(len, values)), of="range")
    return _finding(pair, verdict, spread, same_within=threshold, p_value=None, sees=None, remark=remark)


# --- ratios and their errors ---


class LogRatio(msgspec.Struct, frozen=True, kw_only=True):
    """log(candidate / base) with its standard error.

    `degrees` are the degrees of freedom of the error; None if the error is taken as known. The error is that of a mean:
    its square times `count` is the variance of a single value (a pair's difference, or a process).
    """

    value: float
    error: float
    degrees: int | None
    count: float = 1.0

    @property
    def single_variance(self) -> float:
        return self.error**2 * self.count

    def p_value(self, slack: float = 0.0) -> float:
        """The two-sided probability of this or a larger ratio if the true ratio is at most `slack`, either way."""
        beyond = abs(self.value) - slack
        if beyond <= 0:
            return 1.0
        if self.error == 0:
            return 0.0
        t = beyond / self.error
        return 2 * NormalDist().cdf(-t) if self.degrees is None else max(0.0, 1 - stats.t_coverage(t, self.degrees))

    def least_significant(self, error_rate: float) -> float:
        """The least difference that this test finds significant at that error rate, as a share: 0.012 for 1.2%."""
        t = NormalDist().inv_cdf(1 - error_rate / 2)
        if self.degrees is not None:
            t = stats.t_quantile(1 - error_rate, self.degrees)
        return math.expm1(min(t * self.error, 700.0))

    def interval(self) -> Estimate:
        """Candidate over base with its 95% interval."""
        t = NormalDist().inv_cdf(0.975) if self.degrees is None else stats.t_quantile(STATED_CONFIDENCE, self.degrees)
        low, high = self.value - t * self.error, self.value + t * self.error
        return Estimate(
            value=math.exp(self.value),
            low=math.exp(low),
            high=math.exp(high) if high < 700 else math.inf,
            confidence=STATED_CONFIDENCE,
            count=2,
        )


def log_ratio(base: Sequence[float], candidate: Sequence[float], *, in_turns: bool = False) -> LogRatio:
    """The ratio of the candidate's values to the base's. At least one side must have several values.

    With several values on both sides, the error is that of Welch's t (Biometrika 34, 1947), its degrees of freedom
    rounded down. With several on one side only, their spread is used for the other side, too. From `PAIRS_FROM` values
    that were measured in turns on, the error is that of the paired t, which excludes noise that both of a pair share.
    """
    logs = [[math.log(value) for value in side] for side in (base, candidate)]
    counts = [len(side) for side in logs]
    value, count = fmean(logs[1]) - fmean(logs[0]), 1 / (1 / counts[0] + 1 / counts[1])
    if min(counts) == 1:
        many = max(logs, key=len)
        error = math.sqrt(stats.variance(many) / count)
        return LogRatio(value=value, error=error, degrees=len(many) - 1, count=count)
    if in_turns and counts[0] == counts[1] >= PAIRS_FROM:
        return pair_ratio(base, candidate)
    parts = [stats.variance(side) / len(side) for side in logs]
    spread = sum(part * part / (number - 1) for part, number in zip(parts, counts, strict=True))
    degrees = sum(parts) ** 2 / spread if spread > 0 else min(counts) - 1
    whole = max(1, math.floor(degrees + 1e-9))  # sides with equal variances have whole degrees, but for rounding
    return LogRatio(value=value, error=math.sqrt(sum(parts)), degrees=whole, count=count)


def pair_ratio(base: Sequence[float], candidate: Sequence[float]) -> LogRatio:
    """The ratio of at least two values in turns, with the error of the paired t."""
    differences = [math.log(now) - math.log(was) for was, now in zip(base, candidate, strict=True)]
    error = math.sqrt(stats.variance(differences) / len(differences))
    return LogRatio(value=fmean(differences), error=error, degrees=len(differences) - 1, count=len(differences))


def _ratios(pairs: Sequence[FigurePair], *, in_turns: bool) -> list[LogRatio | None]:
    found = [_own_ratio(pair, in_turns=in_turns) for pair in pairs]
    for metric in Metric if in_turns else (Metric.OVER_EAGER,):
        places = [n for n, pair in enumerate(pairs) if pair.metric is metric and pair.of_processes]
        sides = [pairs[n].values for n in places]
        own = (
            [pair_ratio(*both) if len(both[0]) == len(both[1]) > 1 else None for both in sides]
            if in_turns
            else [found[n] for n in places]
        )
        for n, shared in zip(places, with_shared_variance(own, [min(map(len, one)) for one in sides]), strict=True):
            found[n] = shared or found[n]
    return found


def _own_ratio(pair: FigurePair, *, in_turns: bool) -> LogRatio | None:
    base, candidate = pair.values
    if len(base) > 1 or len(candidate) > 1:
        return log_ratio(base, candidate, in_turns=in_turns)
    errors = [one.log_error for one in (*pair.base, *pair.candidate) if one.log_error is not None]
    if len(errors) < 2:
        return None
    error = math.sqrt(2 * _assumed_spread(pair) ** 2 + sum(error * error for error in errors))
    return LogRatio(value=math.log(candidate[0]) - math.log(base[0]), error=error, degrees=None)


def _assumed_spread(pair: FigurePair) -> float:
    if pair.metric is Metric.OVER_EAGER:
        return ASSUMED_SPREAD_OVER_EAGER
    return ASSUMED_SPREAD_DEVICE_BOUND if pair.is_device_bound else ASSUMED_SPREAD


# --- shared variance ---


class SharedVariance(msgspec.Struct, frozen=True, kw_only=True):
    """The prior of the variance of a case's pairs or processes, from all cases."""

    variance: float
    degrees: float  # of freedom of the prior

    def is_beyond(self, own: float, degrees: int) -> bool:
        """Whether a case whose own variance, with so many degrees of freedom, is `own` is far noisier than others."""
        if own == 0:
            return False
        above = _log_part(own, degrees) - _log_part(self.variance, self.degrees)
        return above > OWN_FROM * math.sqrt(stats.trigamma(degrees / 2) + stats.trigamma(self.degrees / 2))


def with_shared_variance(ratios: Sequence[LogRatio | None], processes: Sequence[int]) -> list[LogRatio | None]:
    """The ratios with errors from all cases together; None for each case that keeps its own error.

    A case with fewer than `PROCESSES_FROM` processes on a side keeps its own error.
    """
    enough = [ratio if count >= PROCESSES_FROM else None for ratio, count in zip(ratios, processes, strict=True)]
    shared = shared_variance([ratio for ratio in enough if ratio is not None])
    return [None if ratio is None or shared is None else _moderated(ratio, shared) for ratio in enough]


def shared_variance(ratios: Sequence[LogRatio]) -> SharedVariance | None:
    """The usual variance of a case, by the moments of its logarithm (Smyth, 2004, 6.2); None for too few cases."""
    known = [(ratio.single_variance, ratio.degrees) for ratio in ratios if ratio.degrees and ratio.error > 0]
    if len(known) < CASES_FROM:
        return None
    logs = [_log_part(one, degrees) for one, degrees in known]
    by_chance = fmean(stats.trigamma(degrees / 2) for _, degrees in known)
    degrees = _shared_degrees(stats.variance(logs) - by_chance)
    return SharedVariance(variance=math.exp(fmean(logs) - _log_part(1.0, degrees)), degrees=degrees)


def _log_part(one: float, degrees: float) -> float:
    """The logarithm of a variance, minus its expected value by chance with so many degrees of freedom."""
    return math.log(one) - stats.digamma(degrees / 2) + math.log(degrees / 2)


def _shared_degrees(spread: float) -> float:
    """The degrees of freedom d for which trigamma(d / 2) is `spread`, the variance of the logarithms beyond chance."""
    low, high = 0.0, MOST_SHARED_DEGREES
    if spread <= stats.trigamma(high / 2):
        return high
    while high - low > 1e-6:
        middle = (low + high) / 2
        low, high = (middle, high) if stats.trigamma(middle / 2) > spread else (low, middle)
    return high


def _moderated(ratio: LogRatio, shared: SharedVariance) -> LogRatio | None:
    own = ratio.single_variance
    if not ratio.degrees or shared.is_beyond(own, ratio.degrees):
        return None
    degrees = shared.degrees + ratio.degrees
    both = (shared.degrees * shared.variance + ratio.degrees * own) / degrees
    return LogRatio(
        value=ratio.value, error=math.sqrt(both / ratio.count), degrees=math.floor(degrees), count=ratio.count
    )
