"""Compare two runs: their differences, a finding for each case and metric, and the cases whose status changed."""

from __future__ import annotations

import enum
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

import msgspec

from torchzoo import stats
from torchzoo.analysis.cases import NO_SPEEDUP, CaseResult, Status, case_results
from torchzoo.analysis.judge import REPEATS, FigurePair, Finding, Verdict, judge, pairs_of
from torchzoo.analysis.means import CaseRatio, geomean_of, quotient
from torchzoo.analysis.refusals import late_compilations, refusals
from torchzoo.analysis.run_figures import REPRODUCIBLE, Metric, run_figures, shown_variant, times_s
from torchzoo.analysis.totals import ALL, ratio_of
from torchzoo.case import Case, Domain, Mode
from torchzoo.errors import UsageError
from torchzoo.machine.differences import Difference, DifferenceKind, run_differences
from torchzoo.record import Manifest, Measured
from torchzoo.settings import CacheMode
from torchzoo.stats import Estimate
from torchzoo.store import Run

# --- one hardware against another ---

#: One case that both runs measured, and the outcomes of its processes in the base and in the candidate run.
ProcessPair = tuple[Case, Sequence[Measured], Sequence[Measured]]


class HardwareRatio(msgspec.Struct, frozen=True, kw_only=True):
    """Time on the base's hardware over time on the candidate's. Above 1, the candidate's hardware is faster."""

    case: Case
    base_s: Estimate  # time of a step
    candidate_s: Estimate
    ratio: Estimate


class HardwareMean(msgspec.Struct, frozen=True, kw_only=True):
    """Geometric mean of a group's ratios; `domain` is `all` for the mean over all domains."""

    axes: str
    domain: str
    mode: Mode
    ratio: Estimate
    cases: int


def hardware_ratio(case: Case, base: Sequence[Measured], candidate: Sequence[Measured]) -> HardwareRatio:
    """The ratio of the latencies of a case that each run measured by itself."""
    was, now = (stats.processes_estimate(times_s(side)) for side in (base, candidate))
    return HardwareRatio(case=case, base_s=was, candidate_s=now, ratio=stats.quotient(was, now))


def hardware_means(pairs: Sequence[ProcessPair], domains: Mapping[str, Domain]) -> Iterable[HardwareMean]:
    """The geometric means over cases by axes, mode and domain (the paper's Figure 5)."""
    groups: dict[tuple[str, Mode, str], list[CaseRatio]] = {}
    for case, base, candidate in pairs:
        was, now = (ratio_of(case, times_s(side)) for side in (base, candidate))
        for domain in filter(None, (domains.get(case.model), ALL)):
            groups.setdefault((case.axes_label(), case.mode, domain), []).append(quotient(was, now))
    order = [*Domain, ALL]
    for (axes, mode, domain), ratios in sorted(groups.items(), key=lambda g: (g[0][:2], order.index(g[0][2]))):
        yield HardwareMean(axes=axes, domain=domain, mode=mode, ratio=geomean_of(ratios), cases=len(ratios))


# --- two runs ---


class Change(enum.StrEnum):
    """The change of a case's status between the runs."""

    NEWLY_FAILING = "newly failing"
    NEWLY_PASSING = "newly passing"
    NEWLY_SKIPPED = "newly skipped"
    NEWLY_UNSTEADY = "newly unsteady"
    NEW = "new"
    GONE = "gone"


REGRESSIONS = frozenset({Verdict.SLOWER, Verdict.MORE})


class StatusChange(msgspec.Struct, frozen=True, kw_only=True):
    case: Case
    change: Change
    base: str  # status in words; empty if the run lacks the case
    candidate: str


class RunComparison(msgspec.Struct, frozen=True, kw_only=True):
    """The result of comparing two runs.

    Runs on different hardware have `device_ratios`, and findings only if their devices are alike: in the figures that
    do not depend on the host.
    """

    base: str
    candidate: str
    base_manifest: Manifest
    candidate_manifest: Manifest
    threshold: float | None  # None: chosen for each case by its noise
    in_turns: bool  # whether equal repeats of both runs were measured one right after the other
    differences: tuple[Difference, ...]
    findings: tuple[Finding, ...]
    changes: tuple[StatusChange, ...]
    device_ratios: tuple[HardwareRatio, ...] = ()
    device_means: tuple[HardwareMean, ...] = ()
    still_failing: int = 0
    unsteady: tuple[Case, ...] = ()  # unsteady or refused in one of the runs, so not compared
    slow_hosts: tuple[int, int] = (0, 0)  # common cases of each run with a slow host during their measurement
    shared_devices: tuple[int, int] = (0, 0)  # common cases of each run with other processes on their device

    @property
    def is_across_hardware(self) -> bool:
        return any(difference.kind is DifferenceKind.HARDWARE for difference in self.differences)

    @property
    def has_regression(self) -> bool:
        """Whether a case is slower, takes more memory or newly fails; between different hardware, only the first."""
        return is_regression(self.findings, () if self.is_across_hardware else self.changes)


def is_regression(findings: Iterable[Finding], changes: Iterable[StatusChange]) -> bool:
    """Whether a case is slower, takes more memory or newly fails."""
    failing = any(one.change is Change.NEWLY_FAILING for one in changes)
    return failing or any(finding.verdict in REGRESSIONS for finding in findings)


def compare_runs(
    base: Run,
    candidate: Run,
    *,
    threshold: float | None = None,
    across: frozenset[DifferenceKind] = frozenset(),
    metrics: Sequence[Metric] = tuple(Metric),
    in_turns: bool = False,
) -> RunComparison:
    """Compare `candidate` with `base`, two runs that may differ in the kinds of `across`.

    `threshold` is the least difference that matters, as a share; None: chosen for each case by its noise. With
    `in_turns`, equal repeats of both runs were measured one right after the other, and repeats that only one run has
    are left out.
    """
    differences = run_differences(base, candidate)
    check_accepted(differences, across)
    is_across_hardware = any(difference.kind is DifferenceKind.HARDWARE for difference in differences)
    old, new = _matchable(case_results(base), case_results(candidate), ignore_device=is_across_hardware)
    common = [case for case in old if case in new]
    if not common:
        raise UsageError(f"{base.path} and {candidate.path} have no case in common: compare runs of the same cases")
    pairs = [(case, *_processes(old[case], new[case], in_turns=in_turns)) for case in common]
    pairs = [(case, was, now) for case, was, now in pairs if was and now]
    unsteady = tuple(
        case for case, was, now in pairs if any(late_compilations(one) or refusals(one) for one in (*was, *now))
    )
    wrong = {case for case in common if Status.INCORRECT in (old[case].status, new[case].status)}
    pairs = [pair for pair in pairs if pair[0] not in wrong.union(unsteady)]
    statuses = [{case: (one.status, _status_text(one)) for case, one in side.items()} for side in (old, new)]
    comparison = RunComparison(
        base=str(base.path),
        candidate=str(candidate.path),
        base_manifest=base.manifest,
        candidate_manifest=candidate.manifest,
        threshold=threshold,
        in_turns=in_turns,
        differences=differences,
        findings=(),
        unsteady=unsteady,
        changes=status_changes(*statuses),
        slow_hosts=(
            sum(old[case].host_was_slow for case in common),
            sum(new[case].host_was_slow for case in common),
        ),
        shared_devices=(
            sum(old[case].device_was_shared for case in common),
            sum(new[case].device_was_shared for case in common),
        ),
        still_failing=still_failing(*statuses),
    )
    if is_across_hardware:
        domains = {**candidate.manifest.domains, **base.manifest.domains}
        comparison = msgspec.structs.replace(
            comparison,
            device_ratios=tuple(hardware_ratio(*pair) for pair in pairs),
            device_means=tuple(hardware_means(pairs, domains)),
        )
        is_same_device = all(d.name != "device" for d in differences if d.kind is DifferenceKind.HARDWARE)
        metrics = [one for one in metrics if one in REPRODUCIBLE and is_same_device]
    same_models = {case.model for case in base.manifest.cases} == {case.model for case in candidate.manifest.cases}
    figures = [one for pair in pairs for one in _figure_pairs(pair, same_models=same_models) if one.metric in metrics]
    return msgspec.structs.replace(comparison, findings=tuple(judge(figures, threshold, in_turns=in_turns)))


def compare_in_turns(
    base: Run, candidate: Run, *, threshold: float | None = None, metrics: Sequence[Metric] = tuple(Metric)
) -> RunComparison:
    """Compare two runs that were measured in turns, whatever their differences, which the user asked about."""
    return compare_runs(
        base, candidate, threshold=threshold, across=frozenset(DifferenceKind), metrics=metrics, in_turns=True
    )


def check_accepted(differences: Iterable[Difference], across: frozenset[DifferenceKind]) -> None:
    """Raise `UsageError` if the runs differ in hardware, torch, driver or kernels and `across` lacks that kind."""
    by_kind = {kind: [d for d in differences if d.kind is kind] for kind in DifferenceKind}
    refused = {kind: some for kind, some in by_kind.items() if some and kind is not DifferenceKind.OTHER}
    missing = [kind for kind in refused if kind not in across]
    if missing:
        texts = [f"{d.name} {d.base} / {d.candidate}" for kind in missing for d in refused[kind]]
        raise UsageError(
            f"the runs differ in {' and '.join(missing)} ({'; '.join(texts)}): if that difference is the point, add "
            f"--across={','.join(refused)}"
        )


AB_FILE = "ab.json"  # of the folder of an A/B


class Side(enum.StrEnum):
    """The runs in the folder of an A/B."""

    BASE = "base"
    CANDIDATE = "candidate"


def are_sides(base: Path, candidate: Path) -> bool:
    """Whether two runs are the sides of one A/B, whose processes were measured in turns."""
    folder = base.resolve().parent
    return (folder / AB_FILE).is_file() and {base.resolve(), candidate.resolve()} == {folder / side for side in Side}


# --- cases and their status ---

_Results = dict[Case, CaseResult]


def _matchable(
    old: Iterable[CaseResult], new: Iterable[CaseResult], *, ignore_device: bool
) -> tuple[_Results, _Results]:
    """Results by case. With `ignore_device` and one device in each run, the base's cases get the candidate's device."""
    was, now = ({result.case: result for result in results} for results in (old, new))
    if ignore_device and all(len({case.device for case in results}) == 1 for results in (was, now)):
        device = next(iter(now)).device
        was = {msgspec.structs.replace(case, device=device): result for case, result in was.items()}
    return was, now


def _figure_pairs(pair: ProcessPair, *, same_models: bool) -> list[FigurePair]:
    case, base, candidate = pair
    doubt = ""
    if _found_other_code(base, candidate):
        doubt = "one run found more compiled code in its caches, and compiling itself takes host memory"
    elif not same_models:
        doubt = "the runs' models differ, and so do the libraries loaded for all"
    pairs = pairs_of(case, run_figures(case, base), run_figures(case, candidate))
    return [one._replace(doubt=doubt) if one.metric is Metric.HOST_MEMORY else one for one in pairs]


def _found_other_code(base: Sequence[Measured], candidate: Sequence[Measured]) -> bool:
    """Whether the two sides' processes found unequal parts of their compiled code in shared caches."""
    compiled = [[one.variants[shown_variant(one)].compilation for one in side] for side in (base, candidate)]
    found = [{(one.cache, one.cache_misses) for one in side if one is not None} for side in compiled]
    is_shared = any(cache is CacheMode.SHARED for side in found for cache, _ in side)
    return is_shared and found[0] != found[1]


def _processes(old: CaseResult, new: CaseResult, *, in_turns: bool) -> tuple[Sequence[Measured], Sequence[Measured]]:
    """The processes of both runs that are compared; of runs in turns, those of equal repeats, as pairs."""
    if not in_turns:
        return old.measured, new.measured
    was, now = (
        {record.case.repeat: record.outcome for record in result.records if isinstance(record.outcome, Measured)}
        for result in (old, new)
    )
    both = sorted(was.keys() & now.keys())
    return [was[repeat] for repeat in both], [now[repeat] for repeat in both]


#: Statuses of cases that could run and gave no trustworthy result.
BAD = (Status.FAILED, Status.INCORRECT, Status.REFUSED)
#: Statuses of cases without a fault.
GOOD = (Status.PASSED, Status.CHECKED)


def _status_text(result: CaseResult) -> str:
    """`failed, timeout in build: took longer than 9 s (in 1 of 5 processes)`."""
    if result.status in GOOD:
        return "measured" if result.measured else "checked"
    if result.status in NO_SPEEDUP:
        return f"{result.status}: {result.reason}"
    if result.status is Status.SKIPPED:
        return f"skipped: {result.reason}"
    count = len(result.failures) + len(result.wrong_checks)
    several = f" (in {count} of {len(result.records)} processes)" if len(result.records) > 1 else ""
    if result.failures:
        failure = result.failures[0]
        return f"failed, {failure.kind} in {failure.stage}: {failure.message}{several}"
    return f"incorrect: {result.wrong_checks[0].reason}{several}"


def _status_change(old: Status | None, new: Status | None) -> Change | None:
    """The change of a case's status, or None. An argument is None if that run lacks the case."""
    if old is None or new is None:
        return Change.NEW if old is None else Change.GONE
    if new in BAD:
        return None if old in BAD else Change.NEWLY_FAILING
    if new is old or (new in GOOD and old in GOOD):
        return None
    if new is Status.UNSTEADY:
        return Change.NEWLY_UNSTEADY
    return Change.NEWLY_PASSING if new in GOOD else Change.NEWLY_SKIPPED


#: Status and description of each case.
CaseStatuses = Mapping[Case, tuple[Status, str]]


def status_changes(old: CaseStatuses, new: CaseStatuses) -> tuple[StatusChange, ...]:
    """The cases whose status differs, sorted by the kind of change."""
    found = []
    for case in {**new, **old}:
        was, now = old.get(case), new.get(case)
        change = _status_change(was and was[0], now and now[0])
        if change is not None:
            texts = ["" if one is None else one[1] for one in (was, now)]
            found.append(StatusChange(case=case, change=change, base=texts[0], candidate=texts[1]))
    order = list(Change)
    return tuple(sorted(found, key=lambda one: order.index(one.change)))


def still_failing(old: CaseStatuses, new: CaseStatuses) -> int:
    """The number of cases that could run on both sides and gave no trustworthy result on either."""
    return sum(old[case][0] in BAD and new[case][0] in BAD for case in old if case in new)


# --- summaries of the findings ---


def cases_of_single_processes(comparison: RunComparison) -> set[Case]:
    """The cases whose latency was tested with one process on each side."""
    return {
        f.case
        for f in comparison.findings
        if f.metric is Metric.LATENCY and f.p_value is not None and f.base_processes == f.candidate_processes == 1
    }


def cases_to_measure_again(comparison: RunComparison) -> dict[Case, int]:
    """The cases that regressed, each with the number of processes to use: at least `REPEATS` for figures."""
    found: dict[Case, int] = {}
    for finding in comparison.findings:
        if finding.verdict in REGRESSIONS:
            found[finding.case] = max(finding.base_processes, finding.candidate_processes, REPEATS)
    for change in comparison.changes:
        if change.change is Change.NEWLY_FAILING:
            found.setdefault(change.case, 1)
    return found
