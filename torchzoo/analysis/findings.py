"""Verdicts on single cases: whether a time or a memory of the candidate run differs from the base run's.

A time is `slower` or `faster` where two things hold. The part of the difference that the host's own speed does not
explain is at least the threshold. And a test says that it is no accident. It compares processes, because
what differs between processes, not within them, makes false alarms: Welch's t on the logarithms of their medians
(`significance.log_ratio`). Processes that were measured in turns are compared as pairs, where they are many, or where
the cases are many and tell their noise together (`moderation`). The test's p-values are adjusted by Holm's method over
all cases and metrics of the comparison, so that without any change at most one comparison in a hundred finds one. A
time is `same` where the 95% interval of the ratio lies within the threshold either way, else `inconclusive`. (A rank
test would need no distribution, but with five processes a side it can't go below p = 0.008: too little evidence for
twenty cases.)

A step that waits for the host takes as long as the host lets it, and hosts differ between processes by 10% and more
where others use the machine. That slows down eager, too, which each process measures in turns with the candidate. So of
such cases the candidate's time over eager's is judged as well: there a difference of a few percent can be found. It
also changes where eager alone became faster or slower, so a remark says what eager did.

Other processes on a device take time of the steps there, and no loop tells how much. A difference is `inconclusive`
where they used it, or had it open, while all processes of one side were measured, and not all of the other.

Memory hardly varies: it is `more` or `less` where the medians differ by the threshold and the repeats' ranges do not
overlap, `inconclusive` where they do.

By default, the least difference that matters is what the case's own noise lets the test find, but at least 1%. Where
that noise is not known, because a run has one process of a case, it is the 7% of TorchBench (Hao et al., 2023,
arXiv:2304.14226; pytorch/benchmark#488). These 7% are also the default for memory, and for what `same` means.
"""

from __future__ import annotations

import enum
import math
from collections.abc import Sequence
from statistics import median

import msgspec

from torchzoo import stats
from torchzoo.analysis.allowances import host_allowance, sharing_allowance
from torchzoo.analysis.moderation import moderated
from torchzoo.analysis.process_values import (
    compares_compile_time,
    compile_times_s,
    found_other_code,
    host_loops_s,
    is_device_bound,
    memory_bytes,
    peak_is_of_pass,
    times_over_eager,
    times_s,
)
from torchzoo.analysis.significance import LogRatio, holm, log_ratio, pair_ratio
from torchzoo.analysis.throttling import always_shared
from torchzoo.case import Case
from torchzoo.record import EAGER_VARIANT, Measured
from torchzoo.stats import Estimate

#: The least difference of times that matters: where the noise between processes is not known, and where it is known.
THRESHOLD, LEAST_THRESHOLD = 0.07, 0.01
#: In how many of a hundred comparisons without any change at least one case is called slower or faster.
FAMILY_WISE_ERROR = 0.01

#: The standard deviation (of the logarithm) between processes that is assumed where each run has one process. Between
#: runs on machines of one kind (the H200s of docs/results and its history, 2026-11-21), 97 in 100 cases differed by
#: less than 2% to 5% in device-bound steps, 15% to 20% in steps that wait for the host, and 16% to 30% in the CPU time
#: of first steps.
ASSUMED_SPREAD_DEVICE_BOUND = 0.02
ASSUMED_SPREAD = 0.10
#: The same for the time over eager's of steps that wait for the host. Between the two runs of the suite on H200s of
#: 2026-11-23 (docs/results), 97 in 100 of 74 such cases differed by less than 16%.
ASSUMED_SPREAD_OVER_EAGER = 0.05
MEMORY_FLOOR_BYTES = 2**20  # a smaller difference never counts, whatever its share


class Metric(enum.StrEnum):
    LATENCY = "latency"  # seconds of a synchronised step of the candidate, or of eager alone
    OVER_EAGER = "time_over_eager"  # the candidate's time over that of eager in turns with it: one over the speedup
    DEVICE_MEMORY = "device_memory"  # bytes, peak allocated
    HOST_MEMORY = "host_memory"  # bytes, peak resident
    COMPILE_TIME = "compile_time"  # CPU seconds of the first step, for backends that compile

    @property
    def unit(self) -> str:
        """`s`, `bytes`, or nothing for a ratio."""
        if self in (Metric.LATENCY, Metric.COMPILE_TIME):
            return "s"
        return "" if self is Metric.OVER_EAGER else "bytes"


class Verdict(enum.StrEnum):
    FASTER = "faster"
    SLOWER = "slower"
    LESS = "less"
    MORE = "more"
    SAME = "same"
    INCONCLUSIVE = "inconclusive"


#: One case that both runs measured, and the outcomes of its processes in the base and in the candidate run.
Pair = tuple[Case, Sequence[Measured], Sequence[Measured]]


class Finding(msgspec.Struct, frozen=True, kw_only=True):
    """One metric of one case: the values of both runs (seconds, bytes or a ratio), their ratio, and the verdict."""

    case: Case
    metric: Metric
    verdict: Verdict
    base: float
    candidate: float
    ratio: Estimate  # candidate over base; of memory the interval is the range of the repeats
    p_value: float | None  # adjusted for the number of tests in the comparison; None if there was no test
    same_within: float  # `same` says that the figures differ by less than this share
    sees: float | None  # the least difference that the test could have found, as a share; None if there was no test
    base_processes: int
    candidate_processes: int
    remark: str = ""

    @property
    def is_notable(self) -> bool:
        """Whether the verdict is that the runs differ."""
        return self.verdict not in (Verdict.SAME, Verdict.INCONCLUSIVE)


class Tested(msgspec.Struct, frozen=True, kw_only=True):
    """A time that has no verdict yet: the verdict depends on the p-values of all tests."""

    case: Case
    metric: Metric
    base: list[list[float]]  # values of each process
    candidate: list[list[float]]
    ratio: LogRatio | None
    allowance: float = 0.0  # the part of the logarithm that the host's own speed, or a shared device, may explain
    remarks: tuple[str, ...] = ()
    of: str = "processes"  # what the values of each side are of


def judge_pairs(
    pairs: Sequence[Pair],
    metrics: Sequence[Metric],
    threshold: float | None,
    *,
    same_models: bool,
    in_turns: bool = False,
) -> list[Finding]:
    """A finding for each pair and metric, in the order of the pairs.

    Args:
        pairs: the cases that both runs measured.
        metrics: what to judge.
        threshold: the least difference that matters: 0.07 for 7%; None: what each case's noise allows.
        same_models: whether both runs measured the same models, and so loaded the same libraries.
        in_turns: whether the processes of the same place on both sides were measured one beside the other.
    """
    made = [make(*pair, in_turns=in_turns) for pair in pairs for make in (_latency, _over_eager, _compile_time)]
    tested = []
    for metric in Metric:
        of_metric = [one for one in made if one is not None and one.metric is metric]
        if in_turns:
            tested += _sharper(of_metric, [pair_ratio(one.base, one.candidate) for one in of_metric])
        elif metric is Metric.OVER_EAGER:
            tested += _sharper(of_metric, [one.ratio for one in of_metric])
        else:
            tested += of_metric
    found = judge_times([one for one in tested if one.metric in metrics], threshold)
    for pair in pairs:
        for metric in (Metric.DEVICE_MEMORY, Metric.HOST_MEMORY):
            finding = _memory(pair, metric, threshold, same_models=same_models) if metric in metrics else None
            if finding is not None:
                found.append(finding)
    place = {case: number for number, (case, _, _) in enumerate(pairs)}
    order = list(Metric)
    return sorted(found, key=lambda finding: (place[finding.case], order.index(finding.metric)))


def _sharper(tested: Sequence[Tested], of_each: Sequence[LogRatio | None]) -> list[Tested]:
    """Tests of one metric, by ratios whose noise all cases tell together, where cases and processes are enough."""
    sharper = moderated(of_each, [min(len(one.base), len(one.candidate)) for one in tested])
    return [
        one if sharp is own else msgspec.structs.replace(one, ratio=sharp)
        for one, own, sharp in zip(tested, of_each, sharper, strict=True)
    ]


def judge_times(tested: Sequence[Tested], threshold: float | None) -> list[Finding]:
    """A finding for each. All tests of a comparison must be given at once: Holm's method depends on their number."""
    p_values = [1.0 if one.ratio is None else one.ratio.p_value(one.allowance) for one in tested]
    error_rate = FAMILY_WISE_ERROR / max(1, len(tested))
    return [_judged(one, p, threshold, error_rate) for one, p in zip(tested, holm(p_values), strict=True)]


def _latency(case: Case, base: Sequence[Measured], candidate: Sequence[Measured], *, in_turns: bool) -> Tested | None:
    sides = (base, candidate)
    values = [times_s(side) for side in sides]
    if not all(map(all, values)):
        return None
    bound = all(map(is_device_bound, (*base, *candidate)))
    spread = ASSUMED_SPREAD_DEVICE_BOUND if bound else ASSUMED_SPREAD
    ratio = log_ratio(*values, assumed_spread=spread, in_turns=in_turns)
    allowance, remark = (0.0, "") if bound or ratio is None else host_allowance(ratio.value, *host_loops_s(*sides))
    by_others, sharing = sharing_allowance(base=always_shared(base), candidate=always_shared(candidate))
    remarks = [remark, sharing, how_sure(ratio, spread)]
    return Tested(
        case=case,
        metric=Metric.LATENCY,
        base=values[0],
        candidate=values[1],
        ratio=ratio,
        allowance=allowance + by_others,
        remarks=tuple(filter(None, remarks)),
    )


def _over_eager(
    case: Case, base: Sequence[Measured], candidate: Sequence[Measured], *, in_turns: bool
) -> Tested | None:
    sides = (base, candidate)
    values = times_over_eager(*sides)
    if not values:
        return None
    ratio = log_ratio(*values, assumed_spread=ASSUMED_SPREAD_OVER_EAGER, in_turns=in_turns)
    own = [stats.processes_value([stats.block_times_s(one.blocks, EAGER_VARIANT) for one in side]) for side in sides]
    by_others, sharing = sharing_allowance(base=always_shared(base), candidate=always_shared(candidate))
    remarks = [
        f"eager's own steps took {own[1] / own[0]:.2f} times as long",
        sharing,
        how_sure(ratio, ASSUMED_SPREAD_OVER_EAGER),
    ]
    return Tested(
        case=case,
        metric=Metric.OVER_EAGER,
        base=values[0],
        candidate=values[1],
        ratio=ratio,
        allowance=by_others,
        remarks=tuple(filter(None, remarks)),
    )


def how_sure(ratio: LogRatio | None, assumed_spread: float) -> str:
    """A remark on a ratio whose error is assumed or not known; empty where it was measured."""
    if ratio is None:
        return "one sample in each process: nothing can be said"
    return f"one process each, assumed to differ by {100 * assumed_spread:.0f}%" if ratio.degrees is None else ""


def _compile_time(
    case: Case, base: Sequence[Measured], candidate: Sequence[Measured], *, in_turns: bool
) -> Tested | None:
    if not compares_compile_time(case, (*base, *candidate)):
        return None
    values = [[[value] for value in compile_times_s(side)] for side in (base, candidate)]
    if len(base) == len(candidate) == 1:
        value = math.log(values[1][0][0] / values[0][0][0])
        ratio: LogRatio | None = LogRatio(value=value, error=math.sqrt(2) * ASSUMED_SPREAD, degrees=None)
    else:
        ratio = log_ratio(*values, assumed_spread=ASSUMED_SPREAD, in_turns=in_turns)
    assert ratio is not None
    allowance, remark = host_allowance(ratio.value, *host_loops_s(base, candidate))
    return Tested(
        case=case,
        metric=Metric.COMPILE_TIME,
        base=values[0],
        candidate=values[1],
        ratio=ratio,
        allowance=allowance,
        remarks=tuple(filter(None, (remark, how_sure(ratio, ASSUMED_SPREAD)))),
    )


def _judged(one: Tested, p_value: float, threshold: float | None, error_rate: float) -> Finding:
    """`error_rate` is that of a single test in the comparison."""
    base, candidate = stats.processes_value(one.base), stats.processes_value(one.candidate)
    same_within = THRESHOLD if threshold is None else threshold
    if threshold is None:
        threshold = THRESHOLD if one.ratio is None or one.ratio.degrees is None else LEAST_THRESHOLD
    sees = None
    if one.ratio is not None:  # what the host's own speed may explain comes on top of the noise
        least = max(threshold, one.ratio.least_significant(error_rate))
        sees = math.expm1(math.log1p(least) + one.allowance)
    enough, near = math.log1p(threshold), math.log1p(same_within)
    if one.ratio is None:
        interval = Estimate(value=candidate / base, low=0.0, high=math.inf, confidence=0.0, count=1)
        verdict = Verdict.INCONCLUSIVE
    else:
        interval = _without_confidence_of_few(one, one.ratio.interval())
        if abs(one.ratio.value) - one.allowance >= enough and p_value < FAMILY_WISE_ERROR:
            verdict = Verdict.SLOWER if one.ratio.value > 0 else Verdict.FASTER
        elif math.exp(-near) < interval.low and interval.high < math.exp(near):
            verdict = Verdict.SAME
        else:
            verdict = Verdict.INCONCLUSIVE
    return Finding(
        case=one.case,
        metric=one.metric,
        verdict=verdict,
        base=base,
        candidate=candidate,
        ratio=interval,
        p_value=None if one.ratio is None else p_value,
        same_within=same_within,
        sees=sees,
        base_processes=len(one.base),
        candidate_processes=len(one.candidate),
        remark="; ".join(one.remarks),
    )


def _without_confidence_of_few(one: Tested, interval: Estimate) -> Estimate:
    """Fewer than four processes of a side that has several: the interval serves the verdict, and is not shown."""
    fewest = min(len(one.base), len(one.candidate))
    if fewest >= stats.LEAST_OF_A_MEAN or max(len(one.base), len(one.candidate)) == 1:
        return interval
    return msgspec.structs.replace(interval, confidence=0.0, count=fewest, of=one.of)


def _memory(pair: Pair, metric: Metric, threshold: float | None, *, same_models: bool) -> Finding | None:
    case, *sides = pair
    values = [memory_bytes(side, on_device=metric is Metric.DEVICE_MEMORY) for side in sides]
    if not all(values):
        return None
    if metric is Metric.HOST_MEMORY and len({peak_is_of_pass(m) for side in sides for m in side}) > 1:
        return None  # one is the peak of the memory pass, the other the peak of the whole process
    doubt = ""
    if metric is Metric.HOST_MEMORY and found_other_code(*sides):
        doubt = "one run found more compiled code in its caches, and compiling itself takes host memory"
    elif metric is Metric.HOST_MEMORY and not same_models:
        doubt = "the runs' models differ, and so do the libraries loaded for all"
    return judge_memory(case, metric, values[0], values[1], threshold, doubt=doubt)


def judge_memory(
    case: Case,
    metric: Metric,
    base_bytes: Sequence[float],
    candidate_bytes: Sequence[float],
    threshold: float | None,
    *,
    doubt: str = "",
) -> Finding:
    """The finding on a memory of one case, from the bytes of each process (or run) of both sides.

    With a `doubt`, a difference is inconclusive, and that is the reason.
    """
    values = (base_bytes, candidate_bytes)
    threshold = THRESHOLD if threshold is None else threshold
    base, candidate = (float(median(side)) for side in values)
    is_apart = max(values[0]) < min(values[1]) or max(values[1]) < min(values[0])
    ratio, remark = candidate / base, ""
    if abs(candidate - base) < MEMORY_FLOOR_BYTES or math.exp(abs(math.log(ratio))) < 1 + threshold:
        verdict = Verdict.SAME
    elif not is_apart:
        verdict, remark = Verdict.INCONCLUSIVE, "the repeats' ranges overlap"
    elif doubt:
        verdict, remark = Verdict.INCONCLUSIVE, doubt
    else:
        verdict = Verdict.MORE if ratio > 1 else Verdict.LESS
    return Finding(
        case=case,
        metric=metric,
        verdict=verdict,
        base=base,
        candidate=candidate,
        ratio=Estimate(
            value=ratio,
            low=min(values[1]) / max(values[0]),
            high=max(values[1]) / min(values[0]),
            confidence=0.0,
            count=min(map(len, values)),
            of="range",
        ),
        p_value=None,
        same_within=threshold,
        sees=None,
        base_processes=len(values[0]),
        candidate_processes=len(values[1]),
        remark=remark,
    )
