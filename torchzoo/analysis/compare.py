"""Two runs compared: what differs between them, a finding for each case and metric, and what broke or was mended."""

from __future__ import annotations

import enum
from collections.abc import Iterable, Sequence

import msgspec

from torchzoo.analysis.cases import NO_SPEEDUP, CaseResult, Status, case_results
from torchzoo.analysis.findings import Finding, Metric, Verdict, judge_pairs
from torchzoo.analysis.hardware import HardwareMean, HardwareRatio, hardware_means, hardware_ratio
from torchzoo.analysis.refusals import late_compilations, refusals
from torchzoo.case import Case
from torchzoo.errors import UsageError
from torchzoo.machine.differences import Difference, DifferenceKind, run_differences
from torchzoo.record import Manifest, Measured
from torchzoo.store import Run


class Change(enum.StrEnum):
    """How a case's status differs between the runs."""

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
    base: str  # what became of it, in words; empty where it is not there
    candidate: str


class RunComparison(msgspec.Struct, frozen=True, kw_only=True):
    """All that comparing two runs gives. `device_ratios` in place of findings where the hardware is the difference."""

    base: str
    candidate: str
    base_manifest: Manifest
    candidate_manifest: Manifest
    threshold: float | None  # None: for each case what its noise allows
    in_turns: bool  # whether equal repeats of both runs were measured one beside the other
    differences: tuple[Difference, ...]
    findings: tuple[Finding, ...]
    changes: tuple[StatusChange, ...]
    device_ratios: tuple[HardwareRatio, ...] = ()
    device_means: tuple[HardwareMean, ...] = ()
    still_failing: int = 0
    unsteady: tuple[Case, ...] = ()  # unsteady or refused in one of the runs: they are not compared
    slow_hosts: tuple[int, int] = (0, 0)  # cases of each run during which the host stayed slow, of those in both
    shared_devices: tuple[int, int] = (0, 0)  # and during which the device was used by others, too

    @property
    def is_across_hardware(self) -> bool:
        return any(difference.kind is DifferenceKind.HARDWARE for difference in self.differences)

    @property
    def regressions(self) -> tuple[Finding, ...]:
        return tuple(finding for finding in self.findings if finding.verdict in REGRESSIONS)

    @property
    def has_regression(self) -> bool:
        """Something is slower, takes more memory or newly fails. Never so between different hardware."""
        failing = any(change.change is Change.NEWLY_FAILING for change in self.changes)
        return not self.is_across_hardware and (bool(self.regressions) or failing)


def compare_runs(
    base: Run,
    candidate: Run,
    *,
    threshold: float | None = None,
    across: frozenset[DifferenceKind] = frozenset(),
    metrics: Sequence[Metric] = tuple(Metric),
    in_turns: bool = False,
) -> RunComparison:
    """Compare `candidate` with `base`.

    Args:
        base: the run before.
        candidate: the run after.
        threshold: the least difference that matters: 0.07 for 7%; None: for each case what its noise allows.
        across: what the runs may differ in.
        metrics: what to judge.
        in_turns: whether equal repeats of both runs were measured one beside the other. Then the repeats of a case that
            only one of them measured are left out.

    Raises:
        UsageError: they differ in more than that, or have no case in common.
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
        changes=tuple(_changes(old, new)),
        slow_hosts=(
            sum(old[case].host_was_slow for case in common),
            sum(new[case].host_was_slow for case in common),
        ),
        shared_devices=(
            sum(old[case].device_was_shared for case in common),
            sum(new[case].device_was_shared for case in common),
        ),
        still_failing=sum(old[case].status in BAD and new[case].status in BAD for case in common),
    )
    if is_across_hardware:
        domains = {**candidate.manifest.domains, **base.manifest.domains}
        return msgspec.structs.replace(
            comparison,
            device_ratios=tuple(hardware_ratio(*pair) for pair in pairs),
            device_means=tuple(hardware_means(pairs, domains)),
        )
    same_models = {case.model for case in base.manifest.cases} == {case.model for case in candidate.manifest.cases}
    return msgspec.structs.replace(
        comparison,
        findings=tuple(judge_pairs(pairs, metrics, threshold, same_models=same_models, in_turns=in_turns)),
    )


def check_accepted(differences: Iterable[Difference], across: frozenset[DifferenceKind]) -> None:
    """Raises `UsageError` where the runs differ in hardware, torch, driver or kernels and `across` does not say so."""
    by_kind = {kind: [d for d in differences if d.kind is kind] for kind in DifferenceKind}
    refused = {kind: some for kind, some in by_kind.items() if some and kind is not DifferenceKind.OTHER}
    missing = [kind for kind in refused if kind not in across]
    if missing:
        texts = [f"{d.name} {d.base} / {d.candidate}" for kind in missing for d in refused[kind]]
        raise UsageError(
            f"the runs differ in {' and '.join(missing)} ({'; '.join(texts)}): if that difference is the point, add "
            f"--across={','.join(refused)}"
        )


# --- cases and their status ---

_Results = dict[Case, CaseResult]


def _matchable(
    old: Iterable[CaseResult], new: Iterable[CaseResult], *, ignore_device: bool
) -> tuple[_Results, _Results]:
    """Results by case. With `ignore_device`, and one device a run, a case on `cuda` is matched with that on `cpu`."""
    was, now = ({result.case: result for result in results} for results in (old, new))
    if ignore_device and all(len({case.device for case in results}) == 1 for results in (was, now)):
        device = next(iter(now)).device
        was = {msgspec.structs.replace(case, device=device): result for case, result in was.items()}
    return was, now


def _processes(old: CaseResult, new: CaseResult, *, in_turns: bool) -> tuple[Sequence[Measured], Sequence[Measured]]:
    """The processes of both runs that are held against each other; in turns, those of equal repeats side by side."""
    if not in_turns:
        return old.measured, new.measured
    was, now = (
        {record.case.repeat: record.outcome for record in result.records if isinstance(record.outcome, Measured)}
        for result in (old, new)
    )
    both = sorted(was.keys() & now.keys())
    return [was[repeat] for repeat in both], [now[repeat] for repeat in both]


#: A case that could run, and gave no result to trust.
BAD = (Status.FAILED, Status.INCORRECT, Status.REFUSED)
#: One without anything wrong.
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


def status_change(old: Status | None, new: Status | None) -> Change | None:
    """How a case's status differs; None stands for a case that is not there, and for no difference."""
    if old is None or new is None:
        return Change.NEW if old is None else Change.GONE
    if new in BAD:
        return None if old in BAD else Change.NEWLY_FAILING
    if new is old or (new in GOOD and old in GOOD):
        return None
    if new is Status.UNSTEADY:
        return Change.NEWLY_UNSTEADY
    return Change.NEWLY_PASSING if new in GOOD else Change.NEWLY_SKIPPED


def _changes(old: _Results, new: _Results) -> list[StatusChange]:
    found = []
    for case in {**new, **old}:
        was, now = old.get(case), new.get(case)
        change = status_change(None if was is None else was.status, None if now is None else now.status)
        if change is not None:
            texts = ["" if result is None else _status_text(result) for result in (was, now)]
            found.append(StatusChange(case=case, change=change, base=texts[0], candidate=texts[1]))
    order = list(Change)
    return sorted(found, key=lambda one: order.index(one.change))
