"""Decide proposals: measure tonight's software and that of an earlier night in turns on the proposed cases."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

import msgspec

from torchzoo.analysis.cases import Status, case_results
from torchzoo.analysis.compare import REGRESSIONS, Change, RunComparison, StatusChange, compare_in_turns
from torchzoo.analysis.judge import PAIRS_FROM, Finding
from torchzoo.case import Case
from torchzoo.environments.make import prepare
from torchzoo.history import ab
from torchzoo.history.ab import AbError, AbRequest
from torchzoo.history.ab_folder import FILE, Side
from torchzoo.history.nights import Confirmed, is_measured
from torchzoo.history.proposals import Kind, Proposal, count_text, counts_of
from torchzoo.history.software import Sides
from torchzoo.report.over_time import value_text
from torchzoo.report.run_comparison import ratio_text
from torchzoo.run.experiment import OnRecord, ignore
from torchzoo.run.request import RunRequest
from torchzoo.store import Run, read_run

#: Processes of each side, tested as pairs.
REPEATS = PAIRS_FROM


class Group(msgspec.Struct, frozen=True, kw_only=True):
    """The proposals that one A/B decides."""

    base: str  # the night that is compared with tonight; a proposal may have a later base of its own
    proposals: tuple[Proposal, ...]

    @property
    def cases(self) -> tuple[Case, ...]:
        return tuple(dict.fromkeys(one.case for one in self.proposals))


class MeasuredGroup(msgspec.Struct, frozen=True, kw_only=True):
    """Both sides of a group, as they were measured."""

    group: Group
    sides: Sides
    base: Run
    candidate: Run


class Decided(msgspec.Struct, frozen=True, kw_only=True):
    """The result of an A/B for a group of proposals."""

    group: Group
    sides: Sides
    comparison: RunComparison
    confirmed: tuple[Confirmed, ...]
    undecided: tuple[Proposal, ...]  # the A/B can't tell, although the figures differ


def groups_of(proposals: Iterable[Proposal]) -> tuple[Group, ...]:
    """Group proposals by the night to compare with: the earliest base of all proposals of a case."""
    proposals = tuple(proposals)
    base: dict[Case, str] = {}
    for one in proposals:
        base[one.case] = min(one.base, base.get(one.case, one.base))
    return tuple(
        Group(base=night, proposals=tuple(one for one in proposals if base[one.case] == night))
        for night in sorted(set(base.values()))
    )


def measure_pair(
    base: str,
    candidate: str,
    cases: Sequence[Case],
    request: RunRequest,
    folder: Path,
    *,
    on_record: OnRecord = ignore,
) -> tuple[Run, Run]:
    """Measure two SPECs in turns on some cases of a request. Measurements that `folder` holds are not repeated.

    Raises:
        TorchzooError: an environment can't be made, or nothing can be measured in it; the message is one line.
    """
    axes = msgspec.structs.replace(request.axes, repeats=REPEATS)
    models = tuple(dict.fromkeys(case.model for case in cases))
    run = msgspec.structs.replace(request, patterns=models, suites=(), axes=axes)
    asked = AbRequest(base=base, candidate=candidate, run=run, only=tuple(cases))
    if not (folder / FILE).is_file():
        ab.begin(asked, folder)
    elif ab.read_request(folder) != asked:
        raise AbError(f"{folder} holds an A/B of something else, begun by an earlier call: remove this folder")
    if not all(is_measured(folder / side) for side in Side):
        ab.measure_sides(asked, prepare(asked.base), prepare(asked.candidate), folder, on_record=on_record)
    return read_run(folder / Side.BASE), read_run(folder / Side.CANDIDATE)


def decide(measured: Sequence[MeasuredGroup]) -> tuple[Decided, ...]:
    """Return the results of the A/Bs of a night. The p-values are adjusted for the tests of all of them together."""
    if not measured:
        return ()
    together = compare_in_turns(_joined([one.base for one in measured]), _joined([one.candidate for one in measured]))
    return tuple(_decided(one, together) for one in measured)


def _joined(runs: Sequence[Run]) -> Run:
    """Join runs that have no case in common."""
    cases = tuple(case for run in runs for case in run.manifest.cases)
    manifest = msgspec.structs.replace(runs[0].manifest, cases=cases)
    return Run(path=runs[0].path, manifest=manifest, records=tuple(record for run in runs for record in run.records))


def _decided(one: MeasuredGroup, together: RunComparison) -> Decided:
    cases = set(one.group.cases)
    comparison = msgspec.structs.replace(
        compare_in_turns(one.base, one.candidate), findings=tuple(f for f in together.findings if f.case in cases)
    )
    confirmed = changes_for_the_worse(comparison, one.base, one.candidate, one.group.base)
    own = {(proposal.case, proposal.kind): proposal.base for proposal in one.group.proposals}
    confirmed = tuple(
        msgspec.structs.replace(found, base=own.get((found.case, found.kind), found.base)) for found in confirmed
    )
    open_ones = {(finding.case, Kind(finding.metric.value)) for finding in comparison.findings if finding.is_open}
    undecided = tuple(p for p in one.group.proposals if (p.case, p.kind) in open_ones)
    return Decided(group=one.group, sides=one.sides, comparison=comparison, confirmed=confirmed, undecided=undecided)


def changes_for_the_worse(comparison: RunComparison, base: Run, candidate: Run, night: str) -> tuple[Confirmed, ...]:
    """Return the changes for the worse: in metrics, statuses (failing, incorrect, unsteady), leaks and graph breaks.

    Args:
        comparison: of the two runs.
        base: the run before.
        candidate: the run after.
        night: the last night before the change.
    """
    found = [of_finding(finding, night) for finding in comparison.findings if finding.verdict in REGRESSIONS]
    statuses = {result.case: result.status for result in case_results(candidate)}
    for change in comparison.changes:
        kind = _kind_of(change, statuses)
        if kind is not None:
            words = f"{change.base} -> {change.candidate}"
            found.append(Confirmed(case=change.case, kind=kind, base=night, words=words))
    was, now = counts_of(case_results(base)), counts_of(case_results(candidate), of_processes=min)  # in every process
    for (case, kind), count in now.items():
        before = was.get((case, kind), count)
        if before < count:
            words = f"{count_text(kind, before)} -> {count_text(kind, count)}"
            found.append(Confirmed(case=case, kind=kind, base=night, words=words))
    return tuple(found)


def _kind_of(change: StatusChange, statuses: Mapping[Case, Status]) -> Kind | None:
    if change.change is Change.NEWLY_UNSTEADY:
        return Kind.UNSTEADY
    if change.change is not Change.NEWLY_FAILING:
        return None
    return Kind.INCORRECT if statuses.get(change.case) is Status.INCORRECT else Kind.FAILING


def of_finding(finding: Finding, night: str) -> Confirmed:
    """Return a difference as a change with both figures, and the ratio with its interval."""
    values = [value_text(finding.metric, value) for value in (finding.base, finding.candidate)]
    words = f"{values[0]} -> {values[1]}, {ratio_text(finding)}"
    return Confirmed(case=finding.case, kind=Kind(finding.metric.value), base=night, ratio=finding.ratio, words=words)
