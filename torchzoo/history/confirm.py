"""Decide proposals: measure tonight's software and that of an earlier night in turns on the proposed cases."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path

import msgspec

from torchzoo.analysis.compare import AB_FILE, RunComparison, Side, compare_in_turns
from torchzoo.analysis.judge import PAIRS_FROM
from torchzoo.case import Case
from torchzoo.environments.make import prepare
from torchzoo.errors import TorchzooError, one_line
from torchzoo.history import ab
from torchzoo.history.ab import AbError, AbRequest
from torchzoo.history.changes import Confirmed, Kind, Proposal, changes_for_the_worse
from torchzoo.history.nights import NIGHTS, RUN, Night, NightWork, is_measured
from torchzoo.history.software import Sides, sides_of
from torchzoo.machine.differences import machine_differences
from torchzoo.report.units import counted
from torchzoo.run.experiment import OnRecord, ignore
from torchzoo.run.request import RunRequest
from torchzoo.store import Run, StoreError, read_run

#: Processes of each side, tested as pairs.
REPEATS = PAIRS_FROM


class Decided(msgspec.Struct, frozen=True, kw_only=True):
    """The A/B that decides some proposals, and what it shows."""

    proposals: tuple[Proposal, ...]
    sides: Sides
    base: Run
    candidate: Run
    comparison: RunComparison
    confirmed: tuple[Confirmed, ...] = ()
    undecided: tuple[Proposal, ...] = ()  # the A/B can't tell, although the figures differ


def confirm(
    work: NightWork, proposed: Sequence[Proposal], before: Sequence[Night], tonight: Run
) -> tuple[Decided, ...]:
    """Decide the proposals by A/Bs. Reasons why some of them could not be decided become remarks."""
    software = {one.stamp: one.software for one in before}
    measured = []
    for number, (night, proposals) in enumerate(by_base(proposed).items(), start=1):
        place = work.folder / ("confirm" if number == 1 else f"confirm-{number}")
        count = len({one.case for one in proposals})
        words = f"{counted(count, 'case')} beside the night {night}"
        try:
            if night not in software:
                raise StoreError(f"{work.options.root / NIGHTS / night} says not what its software was")
            base = read_run(work.options.root / NIGHTS / night / RUN)
            sides = sides_of(software[night], base.manifest, work.asked.software, tonight.manifest)
            specs = f"{sides.base} and {sides.candidate}"
            work.options.show(f"measuring {words} in turns, with {REPEATS} processes of each: {specs}")
            measured.append(_measured(work, proposals, sides, tonight, place))
        except TorchzooError as error:
            work.remark(f"{words} could not be decided: {one_line(error)}")
    decided = decide(measured)
    for one in decided:
        confirmed = {change.key for change in one.confirmed}
        for change in one.confirmed:
            work.options.show(f"confirmed: {change.label}: {change.words}")
        for proposal in one.proposals:
            if proposal.key not in confirmed:
                word = "undecided" if proposal in one.undecided else "not confirmed"
                work.options.show(f"{word}: {proposal.label}")
    return decided


def _measured(work: NightWork, proposals: tuple[Proposal, ...], sides: Sides, tonight: Run, folder: Path) -> Decided:
    cases = tuple(dict.fromkeys(one.case for one in proposals))
    specs, on_record = (sides.base, sides.candidate), work.options.on_record
    base, candidate = measure_pair(*specs, cases, work.asked.request, folder, on_record=on_record)
    changed = machine_differences(tonight.manifest, candidate.manifest)
    if changed:  # while the night was interrupted
        facts = "; ".join(f"{one.name} was {one.base}, is {one.candidate}" for one in changed)
        raise StoreError(f"the environment changed after the run of this night: {facts}")
    comparison = compare_in_turns(base, candidate)
    return Decided(proposals=proposals, sides=sides, base=base, candidate=candidate, comparison=comparison)


def by_base(proposals: Iterable[Proposal]) -> dict[str, tuple[Proposal, ...]]:
    """Group proposals by the night to compare with: the earliest base of all proposals of a case."""
    proposals = tuple(proposals)
    base: dict[Case, str] = {}
    for one in proposals:
        base[one.case] = min(one.base, base.get(one.case, one.base))
    return {night: tuple(one for one in proposals if base[one.case] == night) for night in sorted(set(base.values()))}


def measure_pair(
    base: str,
    candidate: str,
    cases: Sequence[Case],
    request: RunRequest,
    folder: Path,
    *,
    on_record: OnRecord = ignore,
) -> tuple[Run, Run]:
    """Measure two SPECs in turns on some cases of a request. Measurements that `folder` holds are not repeated."""
    axes = msgspec.structs.replace(request.axes, repeats=REPEATS)
    models = tuple(dict.fromkeys(case.model for case in cases))
    run = msgspec.structs.replace(request, patterns=models, suites=(), axes=axes)
    asked = AbRequest(base=base, candidate=candidate, run=run, only=tuple(cases))
    if not (folder / AB_FILE).is_file():
        ab.begin(asked, folder)
    elif ab.read_request(folder) != asked:
        raise AbError(f"{folder} holds an A/B of something else, begun by an earlier call: remove this folder")
    if not all(is_measured(folder / side) for side in Side):
        ab.measure_sides(asked, prepare(asked.base), prepare(asked.candidate), folder, on_record=on_record)
    return read_run(folder / Side.BASE), read_run(folder / Side.CANDIDATE)


def decide(measured: Sequence[Decided]) -> tuple[Decided, ...]:
    """Return the A/Bs of a night with what they show. The p-values are adjusted for the tests of all of them."""
    if not measured:
        return ()
    together = compare_in_turns(_joined([one.base for one in measured]), _joined([one.candidate for one in measured]))
    return tuple(_decided(one, together) for one in measured)


def _joined(runs: Sequence[Run]) -> Run:
    cases = tuple(case for run in runs for case in run.manifest.cases)
    manifest = msgspec.structs.replace(runs[0].manifest, cases=cases)
    return Run(path=runs[0].path, manifest=manifest, records=tuple(record for run in runs for record in run.records))


def _decided(one: Decided, together: RunComparison) -> Decided:
    bases = {proposal.key: proposal.base for proposal in one.proposals}
    cases = {case for case, _ in bases}
    findings = tuple(finding for finding in together.findings if finding.case in cases)
    comparison = msgspec.structs.replace(one.comparison, findings=findings)
    worse = changes_for_the_worse(comparison, one.base, one.candidate)
    earliest = min(bases.values())
    is_open = {(finding.case, Kind(finding.metric.value)) for finding in findings if finding.is_open}
    return msgspec.structs.replace(
        one,
        comparison=comparison,
        confirmed=tuple(msgspec.structs.replace(found, base=bases.get(key, earliest)) for key, found in worse.items()),
        undecided=tuple(proposal for proposal in one.proposals if proposal.key in is_open),
    )
