"""Two runs held against each other: a verdict for each case and metric, from the raw samples. Pure functions.

A latency or compile time is `slower` or `faster` where both hold: the part of the difference that the host's own speed
does not explain is at least the threshold, and a test says that it is no accident. The test compares processes
(`stats.log_ratio`: Welch's t on the logarithms of their medians), since what differs between processes, not within
them, is what makes false alarms. Its p-values are adjusted by Holm's method over all cases and metrics of the
comparison, so that with no change at all at most one comparison in twenty finds any. It is `same` where the 95%
interval of the ratio lies within the threshold either way, else `inconclusive`. (A rank test would need no
distribution, but with five processes a side it can't go below p = 0.008: too little evidence for twenty cases.)

Memory hardly varies: it is `more` or `less` where the medians differ by the threshold and the repeats' ranges do not
meet, `inconclusive` where they do.

The default threshold of 7% is that of TorchBench (Hao et al., 2023, arXiv:2304.14226; pytorch/benchmark#488).
"""

from __future__ import annotations

import enum
import math
from collections.abc import Iterable, Mapping, Sequence
from statistics import fmean, median
from typing import Any

import msgspec

from torchzoo import stats
from torchzoo.plan import UsageError
from torchzoo.record import EAGER, CacheMode, Case, Failed, Manifest, Measured, Record, Skipped
from torchzoo.report.rows import by_case, measured_of
from torchzoo.spec import Domain, Mode
from torchzoo.stats import CANDIDATE_VARIANT, EAGER_VARIANT, Estimate, LogRatio
from torchzoo.store import Run

THRESHOLD = 0.07
FAMILY_WISE_ERROR = 0.05

#: Standard deviation of the logarithm that is assumed of processes where one a side can't tell. Between runs on
#: machines of one kind (the H200s of docs/results and its history, 2026-11-21) 97 in 100 cases differed by less than 2%
#: to 5% in device-bound steps, 15% to 20% in steps that wait for the host, 16% to 30% in first steps' CPU time.
ASSUMED_SPREAD_DEVICE_BOUND = 0.02
ASSUMED_SPREAD = 0.10
HOST_LOOP_NOISE = 0.02  # of `host_loop_s` between processes on a quiet machine: less is no other speed of the host
MEMORY_FLOOR_BYTES = 2**20  # a difference below it is none, whatever its share
DEVICE_BOUND = 0.5  # of a step's time, in which the host has handed all its work to the device


class Metric(enum.StrEnum):
    LATENCY = "latency"  # seconds of a synchronised step: of the candidate, or of eager alone
    DEVICE_MEMORY = "device_memory"  # bytes, peak allocated
    HOST_MEMORY = "host_memory"  # bytes, peak resident
    COMPILE_TIME = "compile_time"  # seconds of CPU time of the first step, of compiling backends


class Verdict(enum.StrEnum):
    FASTER = "faster"
    SLOWER = "slower"
    LESS = "less"
    MORE = "more"
    SAME = "same"
    INCONCLUSIVE = "inconclusive"


class Change(enum.StrEnum):
    """How a case's status differs between the runs."""

    NEWLY_FAILING = "newly failing"
    NEWLY_PASSING = "newly passing"
    NEWLY_SKIPPED = "newly skipped"
    NEW = "new"
    GONE = "gone"


REGRESSIONS = frozenset({Verdict.SLOWER, Verdict.MORE})


class Ground(enum.StrEnum):
    """What runs can differ in. The first three need `--across`."""

    HARDWARE = "hardware"
    TORCH = "torch"
    DRIVER = "driver"
    OTHER = "other"


class Difference(msgspec.Struct, frozen=True, kw_only=True):
    ground: Ground
    name: str
    base: str
    candidate: str


class Finding(msgspec.Struct, frozen=True, kw_only=True):
    """One metric of a case: seconds or bytes of both runs, candidate over base, and what to think of it."""

    case: Case
    metric: Metric
    verdict: Verdict
    base: float
    candidate: float
    ratio: Estimate  # of memory: from the least to the greatest that repeats give
    p_value: float | None  # adjusted for the comparison's number of tests; None where there was no test
    base_processes: int
    candidate_processes: int
    remark: str = ""

    @property
    def is_notable(self) -> bool:
        """Judged to differ."""
        return self.verdict not in (Verdict.SAME, Verdict.INCONCLUSIVE)


class StatusChange(msgspec.Struct, frozen=True, kw_only=True):
    case: Case
    change: Change
    base: str  # what became of it, in words; empty where it is not there
    candidate: str


class DeviceRatio(msgspec.Struct, frozen=True, kw_only=True):
    """Time on the base's hardware over time on the candidate's: above 1, the candidate's is faster."""

    case: Case
    ratio: float


class DeviceMean(msgspec.Struct, frozen=True, kw_only=True):
    """Geometric mean of a group's ratios; `domain` is `all` for all of them."""

    axes: str
    domain: str
    mode: Mode
    ratio: Estimate
    cases: int


class RunComparison(msgspec.Struct, frozen=True, kw_only=True):
    """All that comparing two runs gives. `device_ratios` in place of findings where the hardware is the difference."""

    base: str
    candidate: str
    base_manifest: Manifest
    candidate_manifest: Manifest
    threshold: float
    differences: tuple[Difference, ...]
    findings: tuple[Finding, ...]
    changes: tuple[StatusChange, ...]
    device_ratios: tuple[DeviceRatio, ...] = ()
    device_means: tuple[DeviceMean, ...] = ()
    still_failing: int = 0

    @property
    def is_across_hardware(self) -> bool:
        return any(difference.ground is Ground.HARDWARE for difference in self.differences)

    @property
    def regressions(self) -> tuple[Finding, ...]:
        return tuple(finding for finding in self.findings if finding.verdict in REGRESSIONS)

    @property
    def has_regression(self) -> bool:
        """Something is slower, takes more memory or newly fails. Never so between different hardware."""
        failing = any(change.change is Change.NEWLY_FAILING for change in self.changes)
        return not self.is_across_hardware and (bool(self.regressions) or failing)


def compare(
    base: Run,
    candidate: Run,
    *,
    threshold: float = THRESHOLD,
    across: frozenset[Ground] = frozenset(),
    metrics: Sequence[Metric] = tuple(Metric),
) -> RunComparison:
    """Hold `candidate` against `base`.

    Args:
        threshold: the least difference that matters: 0.07 for 7%.
        across: what the runs may differ in.

    Raises:
        UsageError: they differ in more than that, or have no case in common.
    """
    differences = find_differences(base, candidate)
    check_ground(differences, across)
    is_across_hardware = any(difference.ground is Ground.HARDWARE for difference in differences)
    old, new = _matchable(base.records, candidate.records, ignore_device=is_across_hardware)
    common = [case for case in old if case in new]
    if not common:
        raise UsageError(f"{base.path} and {candidate.path} have no case in common: compare runs of the same cases")
    measured = [(case, measured_of(old[case]), measured_of(new[case])) for case in common]
    measured = [(case, one, other) for case, one, other in measured if one and other]
    changes = tuple(_changes(old, new))
    states = [(_state(old[case]), _state(new[case])) for case in common]
    comparison = RunComparison(
        base=str(base.path),
        candidate=str(candidate.path),
        base_manifest=base.manifest,
        candidate_manifest=candidate.manifest,
        threshold=threshold,
        differences=differences,
        findings=(),
        changes=changes,
        still_failing=sum(one == other == _State.FAILING for one, other in states),
    )
    if is_across_hardware:
        domains = {**candidate.manifest.domains, **base.manifest.domains}
        return msgspec.structs.replace(
            comparison,
            device_ratios=tuple(_device_ratio(*one) for one in measured),
            device_means=tuple(_device_means(measured, domains)),
        )
    same_models = {case.model for case in base.manifest.cases} == {case.model for case in candidate.manifest.cases}
    return msgspec.structs.replace(
        comparison, findings=tuple(_findings(measured, metrics, threshold, same_models=same_models))
    )


# --- what the runs stand on ---


def find_differences(base: Run, candidate: Run) -> tuple[Difference, ...]:
    """What of hardware, torch, drivers, libraries and settings differs; facts that either run lacks are not."""
    ours, theirs = _facts(base), _facts(candidate)
    uses_cpu = all(any(case.device == "cpu" for case in run.manifest.cases) for run in (base, candidate))
    found = []
    for (ground, name), was in {**dict.fromkeys(theirs), **ours}.items():
        now = theirs.get((ground, name))
        if was == now or (name == "usable cores" and not uses_cpu and None in (was, now)):
            continue
        if name == "usable cores" and not uses_cpu:
            ground = Ground.OTHER  # noqa: PLW2901  a GPU's cases hardly notice
        found.append(Difference(ground=ground, name=name, base=was or "none", candidate=now or "none"))
    return tuple(sorted(found, key=lambda difference: list(Ground).index(difference.ground)))


def _facts(run: Run) -> dict[tuple[Ground, str], str]:
    manifest = run.manifest
    environment = manifest.environment
    facts: dict[tuple[Ground, str], Any] = {
        (Ground.HARDWARE, "CPU"): environment.get("cpu"),
        (Ground.HARDWARE, "usable cores"): environment.get("cpu_usable"),
    }
    if any(case.device != "cpu" for case in manifest.cases):
        names = {
            r.outcome.device_name for r in run.records if isinstance(r.outcome, Measured) and r.case.device != "cpu"
        }
        gpus = environment.get("gpus") or []
        facts[Ground.HARDWARE, "device"] = ", ".join(sorted(names or {gpu["name"] for gpu in gpus}))
        facts[Ground.DRIVER, "driver"] = ", ".join(sorted({str(gpu["driver"]) for gpu in gpus}))
        facts[Ground.OTHER, "GPUs"] = len(gpus)
    else:
        facts[Ground.HARDWARE, "device"] = "CPU"
    facts |= {(Ground.TORCH, name): environment.get(name) for name in ("torch", "torch_commit", "cuda", "hip", "cudnn")}
    facts |= {(Ground.OTHER, name): version for name, version in (environment.get("packages") or {}).items()}
    facts |= {(Ground.OTHER, name): environment.get(name) for name in ("python", "torchzoo", "torchzoo_commit")}
    variables = environment.get("variables") or {}
    facts |= {(Ground.OTHER, name): value for name, value in variables.items() if not name.startswith("TORCHZOO_")}
    facts[Ground.OTHER, "threads"] = manifest.settings.threads
    facts[Ground.OTHER, "compile caches"] = manifest.settings.cache
    facts[Ground.OTHER, "workers"] = manifest.settings.jobs
    return {key: str(value) for key, value in facts.items() if value not in (None, "")}


def check_ground(differences: Iterable[Difference], across: frozenset[Ground]) -> None:
    """Raises `UsageError` where the runs differ in hardware, torch or driver and that was not said to be the point."""
    grounds = {ground: [d for d in differences if d.ground is ground] for ground in Ground}
    refused = {ground: some for ground, some in grounds.items() if some and ground is not Ground.OTHER}
    missing = [ground for ground in refused if ground not in across]
    if missing:
        told = [f"{d.name} {d.base} / {d.candidate}" for ground in missing for d in refused[ground]]
        raise UsageError(
            f"the runs differ in {' and '.join(missing)} ({'; '.join(told)}): if that difference is the point, add "
            f"--across={','.join(refused)}"
        )


# --- cases and their status ---

Groups = dict[Case, list[Record]]


class _State(enum.Enum):
    PASSING = "passing"
    FAILING = "failing"
    SKIPPED = "skipped"


def _matchable(old: Iterable[Record], new: Iterable[Record], *, ignore_device: bool) -> tuple[Groups, Groups]:
    """Records by case; with `ignore_device` a case on `cuda` meets the same on `cpu`, where each run has one device."""
    groups = by_case(old), by_case(new)
    if ignore_device and all(len({case.device for case in group}) == 1 for group in groups):
        device = next(iter(groups[1])).device
        was = {msgspec.structs.replace(case, device=device): records for case, records in groups[0].items()}
        return was, groups[1]
    return groups


def _is_bad(record: Record) -> bool:
    outcome = record.outcome
    return isinstance(outcome, Failed) or (isinstance(outcome, Measured) and outcome.is_incorrect)


def _state(records: Sequence[Record]) -> _State:
    """A case fails where one of its processes does, or finds its results wrong."""
    if any(map(_is_bad, records)):
        return _State.FAILING
    return _State.PASSING if measured_of(records) else _State.SKIPPED


def _in_words(records: Sequence[Record]) -> str:
    bad = [record for record in records if _is_bad(record)]
    several = f" (in {len(bad)} of {len(records)} processes)" if len(records) > 1 else ""
    if bad:
        outcome = bad[0].outcome
        if isinstance(outcome, Failed):
            return f"failed, {outcome.kind} in {outcome.stage}: {outcome.message}{several}"
        assert isinstance(outcome, Measured)
        assert outcome.check is not None
        return f"incorrect: {outcome.check.reason}{several}"
    skipped = [record.outcome for record in records if isinstance(record.outcome, Skipped)]
    return "measured" if measured_of(records) else f"skipped: {skipped[0].reason}"


_CHANGES = {
    (_State.PASSING, _State.FAILING): Change.NEWLY_FAILING,
    (_State.SKIPPED, _State.FAILING): Change.NEWLY_FAILING,
    (_State.FAILING, _State.PASSING): Change.NEWLY_PASSING,
    (_State.SKIPPED, _State.PASSING): Change.NEWLY_PASSING,
    (_State.PASSING, _State.SKIPPED): Change.NEWLY_SKIPPED,
    (_State.FAILING, _State.SKIPPED): Change.NEWLY_SKIPPED,
}


def _changes(old: Groups, new: Groups) -> Iterable[StatusChange]:
    found = []
    for case in {**new, **old}:
        if case not in old or case not in new:
            change: Change | None = Change.NEW if case in new else Change.GONE
        else:
            change = _CHANGES.get((_state(old[case]), _state(new[case])))
        if change is not None:
            was, now = (_in_words(group[case]) if case in group else "" for group in (old, new))
            found.append(StatusChange(case=case, change=change, base=was, candidate=now))
    order = list(Change)
    return sorted(found, key=lambda one: order.index(one.change))


# --- verdicts ---

Pair = tuple[Case, list[Measured], list[Measured]]


class _Tested(msgspec.Struct, frozen=True, kw_only=True):
    """A latency or compile time before its verdict: that waits for the p-values of all others."""

    case: Case
    metric: Metric
    base: list[list[float]]  # values of each process
    candidate: list[list[float]]
    ratio: LogRatio | None
    allowance: float = 0.0  # of the logarithm: what the host's own speed explains
    remarks: tuple[str, ...] = ()


def _findings(
    pairs: Sequence[Pair], metrics: Sequence[Metric], threshold: float, *, same_models: bool
) -> list[Finding]:
    tested = [one for pair in pairs for make in (_latency, _compile_time) if (one := make(*pair)) is not None]
    tested = [one for one in tested if one.metric in metrics]
    p_values = [1.0 if one.ratio is None else one.ratio.p_value(one.allowance) for one in tested]
    found = [_judged(one, p, threshold) for one, p in zip(tested, stats.holm(p_values), strict=True)]
    for pair in pairs:
        for metric in (Metric.DEVICE_MEMORY, Metric.HOST_MEMORY):
            finding = _memory(pair, metric, threshold, same_models=same_models) if metric in metrics else None
            if finding is not None:
                found.append(finding)
    place = {case: number for number, (case, _, _) in enumerate(pairs)}
    order = list(Metric)
    return sorted(found, key=lambda finding: (place[finding.case], order.index(finding.metric)))


def shown_variant(measured: Measured) -> str:
    """Whose figures stand for the case: the candidate's, or eager's where there is none."""
    return CANDIDATE_VARIANT if CANDIDATE_VARIANT in measured.variants else EAGER_VARIANT


def times_s(processes: Iterable[Measured]) -> list[list[float]]:
    """Step times of the variant that is shown, block by block, of each process."""
    return [stats.block_times_s(measured.blocks, shown_variant(measured)) for measured in processes]


def is_device_bound(measured: Measured) -> bool:
    """The host has given the device a step's work before half of the step's time is over."""
    variant = shown_variant(measured)
    host_s = [run.host_s for run in measured.variants[variant].back_to_back if run.host_s is not None]
    return bool(host_s) and median(host_s) < DEVICE_BOUND * stats.latency_s(measured.blocks, variant).value


def _latency(case: Case, base: Sequence[Measured], candidate: Sequence[Measured]) -> _Tested | None:
    values = [times_s(base), times_s(candidate)]
    if not all(map(all, values)):
        return None
    bound = all(map(is_device_bound, (*base, *candidate)))
    spread = ASSUMED_SPREAD_DEVICE_BOUND if bound else ASSUMED_SPREAD
    ratio = stats.log_ratio(*values, assumed_spread=spread)
    allowance, remark = (0.0, "") if bound or ratio is None else _host_allowance(ratio.value, base, candidate)
    remarks = [remark, _how_sure(ratio, spread)]
    return _Tested(
        case=case,
        metric=Metric.LATENCY,
        base=values[0],
        candidate=values[1],
        ratio=ratio,
        allowance=allowance,
        remarks=tuple(filter(None, remarks)),
    )


def _how_sure(ratio: LogRatio | None, assumed_spread: float) -> str:
    if ratio is None:
        return "one sample a process: there is no telling"
    return f"one process each, assumed to differ by {100 * assumed_spread:.0f}%" if ratio.degrees is None else ""


def _host_allowance(value: float, base: Sequence[Measured], candidate: Sequence[Measured]) -> tuple[float, str]:
    """What the host's own speed, by its loop of plain Python, explains of a difference in the same direction."""
    loops = [[fmean(m.host_loop_s) for m in side if m.host_loop_s] for side in (base, candidate)]
    if not all(loops):
        return math.inf, "the host's own speed was not recorded"
    host = math.log(median(loops[1]) / median(loops[0]))
    if abs(host) <= HOST_LOOP_NOISE or host * value <= 0:
        return 0.0, ""
    return abs(host), f"the host's own loop took {math.exp(host):.2f} times as long: so much is not counted"


def _compile_time(case: Case, base: Sequence[Measured], candidate: Sequence[Measured]) -> _Tested | None:
    if case.backend == EAGER:
        return None
    sides = [[m.variants[CANDIDATE_VARIANT] for m in side] for side in (base, candidate)]
    caches = {one.compilation.cache for side in sides for one in side if one.compilation is not None}
    if len(caches) != 1 or CacheMode.SHARED in caches:
        return None  # what is compiled anew is not known to be the same
    values = [[[one.first_step_cpu_s] for one in side] for side in sides]
    if min(value for side in values for [value] in side) <= 0:
        return None
    if len(base) == len(candidate) == 1:
        value = math.log(values[1][0][0] / values[0][0][0])
        ratio: LogRatio | None = LogRatio(value=value, error=math.sqrt(2) * ASSUMED_SPREAD, degrees=None)
    else:
        ratio = stats.log_ratio(*values, assumed_spread=ASSUMED_SPREAD)
    assert ratio is not None
    allowance, remark = _host_allowance(ratio.value, base, candidate)
    return _Tested(
        case=case,
        metric=Metric.COMPILE_TIME,
        base=values[0],
        candidate=values[1],
        ratio=ratio,
        allowance=allowance,
        remarks=tuple(filter(None, (remark, _how_sure(ratio, ASSUMED_SPREAD)))),
    )


def _judged(one: _Tested, p_value: float, threshold: float) -> Finding:
    base, candidate = stats.processes_estimate(one.base).value, stats.processes_estimate(one.candidate).value
    enough = math.log1p(threshold)
    if one.ratio is None:
        interval = Estimate(value=candidate / base, low=0.0, high=math.inf, confidence=0.0, count=1)
        verdict = Verdict.INCONCLUSIVE
    else:
        interval = one.ratio.interval()
        if abs(one.ratio.value) - one.allowance >= enough and p_value < FAMILY_WISE_ERROR:
            verdict = Verdict.SLOWER if one.ratio.value > 0 else Verdict.FASTER
        elif math.exp(-enough) < interval.low and interval.high < math.exp(enough):
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
        base_processes=len(one.base),
        candidate_processes=len(one.candidate),
        remark="; ".join(one.remarks),
    )


def _memory(pair: Pair, metric: Metric, threshold: float, *, same_models: bool) -> Finding | None:
    case, *sides = pair
    read = _device_bytes if metric is Metric.DEVICE_MEMORY else _host_bytes
    values = [[value for measured in side if (value := read(measured))] for side in sides]
    if not all(values):
        return None
    if metric is Metric.HOST_MEMORY and len({_peak_is_of_pass(m) for side in sides for m in side}) > 1:
        return None  # one is the peak of the memory pass, the other of the whole process
    base, candidate = (float(median(side)) for side in values)
    is_apart = max(values[0]) < min(values[1]) or max(values[1]) < min(values[0])
    ratio, remark = candidate / base, ""
    if abs(candidate - base) < MEMORY_FLOOR_BYTES or math.exp(abs(math.log(ratio))) < 1 + threshold:
        verdict = Verdict.SAME
    elif not is_apart:
        verdict, remark = Verdict.INCONCLUSIVE, "the repeats' ranges meet"
    elif metric is Metric.HOST_MEMORY and not same_models:
        verdict, remark = (
            Verdict.INCONCLUSIVE,
            "the runs' models differ, and so do the libraries loaded for all",
        )
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
        ),
        p_value=None,
        base_processes=len(values[0]),
        candidate_processes=len(values[1]),
        remark=remark,
    )


def _device_bytes(measured: Measured) -> int | None:
    return measured.variants[shown_variant(measured)].memory.device_peak_allocated_bytes


def _host_bytes(measured: Measured) -> int | None:
    return measured.variants[shown_variant(measured)].memory.host_peak_rss_bytes


def _peak_is_of_pass(measured: Measured) -> bool:
    return measured.variants[shown_variant(measured)].memory.host_peak_is_of_pass


# --- one device against another ---

ALL = "all"


def _device_ratio(case: Case, base: Sequence[Measured], candidate: Sequence[Measured]) -> DeviceRatio:
    was, now = (stats.processes_estimate(times_s(side)).value for side in (base, candidate))
    return DeviceRatio(case=case, ratio=was / now)


def _device_means(pairs: Sequence[Pair], domains: Mapping[str, Domain]) -> Iterable[DeviceMean]:
    """By backend and the other axes, mode and domain: the geometric mean over cases (the paper's Figure 5)."""
    import numpy as np

    generator = np.random.default_rng(0)
    groups: dict[tuple[str, Mode, str], list[stats.Resampled]] = {}
    for case, base, candidate in pairs:
        was, now = (
            stats.resampled_processes(times_s(side), cluster=case.model, generator=generator)
            for side in (base, candidate)
        )
        ratio = stats.resampled_ratio(was, now)
        for domain in filter(None, (domains.get(case.model), ALL)):
            groups.setdefault((_axes(case), case.mode, domain), []).append(ratio)
    order = [*Domain, ALL]
    for (axes, mode, domain), ratios in sorted(groups.items(), key=lambda g: (g[0][:2], order.index(g[0][2]))):
        yield DeviceMean(axes=axes, domain=domain, mode=mode, ratio=stats.geomean_of(ratios), cases=len(ratios))


def _axes(case: Case) -> str:
    """Backend, precision and what else cases must share to be averaged."""
    label = msgspec.structs.replace(case, model="", device="", batch_size=None).label().split()
    return " ".join(word for word in label if word != case.mode)
