"""Decide the status of each case of a run, or of several runs of one machine. No other module decides it."""

from __future__ import annotations

import enum
from collections.abc import Iterable, Mapping, Sequence
from fnmatch import fnmatchcase
from functools import cached_property
from pathlib import Path

import msgspec

from torchzoo.analysis.bound import Bound, case_bound
from torchzoo.analysis.command_lines import command
from torchzoo.analysis.figures import CaseFigures, case_figures
from torchzoo.analysis.refusals import late_compilations, refusals, unsteady_words
from torchzoo.analysis.throttling import was_shared
from torchzoo.case import EAGER, Case, Domain
from torchzoo.errors import UsageError, nearest
from torchzoo.machine.differences import why_not_together
from torchzoo.record import Check, Checked, CheckStatus, Failed, Manifest, Measured, Outcome, Record, Skipped
from torchzoo.store import Run, StoreError, read_run


class Status(enum.StrEnum):
    """The result of a case. With several repeats, the first status in this order that a repeat has."""

    FAILED = "failed"
    INCORRECT = "incorrect"  # measured or checked, with results that differ from eager's
    REFUSED = "refused"  # measured, but much of it ran in eager, or it did other work than eager
    UNSTEADY = "unsteady"  # measured, but compiled again during the measurement
    PASSED = "passed"
    CHECKED = "checked"  # not found incorrect; nothing was timed
    SKIPPED = "skipped"


#: Statuses of measured cases whose figures are shown, but are not a speedup of the backend and count in no mean.
NO_SPEEDUP = frozenset({Status.REFUSED, Status.UNSTEADY})


class CaseResult(msgspec.Struct, frozen=True, kw_only=True, dict=True):
    """A case with the records of all its repeats."""

    case: Case  # its repeat is 0
    records: tuple[Record, ...]
    domain: Domain | None
    manifest: Manifest
    run: Path

    @cached_property
    def measured(self) -> tuple[Measured, ...]:
        """The outcomes of the repeats that were measured."""
        return tuple(record.outcome for record in self.records if isinstance(record.outcome, Measured))

    @cached_property
    def checked(self) -> tuple[Checked, ...]:
        """The outcomes of the repeats that were checked without being timed."""
        return tuple(record.outcome for record in self.records if isinstance(record.outcome, Checked))

    @property
    def checks(self) -> tuple[Check | None, ...]:
        """The check of each repeat that was measured or checked; None where results were not checked."""
        return (*(one.check for one in self.measured), *(one.check for one in self.checked))

    @property
    def wrong_checks(self) -> tuple[Check, ...]:
        """The checks that found results other than eager's."""
        return tuple(one for one in self.checks if one is not None and one.status is CheckStatus.INCORRECT)

    @cached_property
    def failures(self) -> tuple[Failed, ...]:
        """The outcomes of the repeats that failed."""
        return tuple(record.outcome for record in self.records if isinstance(record.outcome, Failed))

    @property
    def all_failures(self) -> tuple[Failed, ...]:
        """All failures, including those after the timing of repeats that were measured."""
        return tuple(record.failure for record in self.records if record.failure is not None)

    @cached_property
    def status(self) -> Status:
        if self.failures:
            return Status.FAILED
        if self.wrong_checks:
            return Status.INCORRECT
        if any(map(refusals, self.measured)):
            return Status.REFUSED
        if any(map(late_compilations, self.measured)):
            return Status.UNSTEADY
        if self.measured:
            return Status.PASSED
        return Status.CHECKED if self.checked else Status.SKIPPED

    @property
    def passed(self) -> bool:
        """Whether the figures of the case count in means."""
        return self.status is Status.PASSED

    @property
    def could_run(self) -> bool:
        return self.status is not Status.SKIPPED

    @property
    def is_timed(self) -> bool:
        """Whether the run measures times. If not, the case has at best a verdict on its results, and no figures."""
        return self.manifest.settings.is_timed

    @property
    def host_was_slow(self) -> bool:
        """Whether the host stayed slow during the measurement of a repeat. Such steps count nevertheless."""
        return any(measured.host is not None and measured.host.was_slow for measured in self.measured)

    @property
    def device_was_shared(self) -> bool:
        """Whether other processes used the device, or had it open, during the measurement of a repeat."""
        return any(map(was_shared, self.measured))

    @property
    def has_candidate(self) -> bool:
        """Whether the case compares a backend with eager."""
        return self.case.backend != EAGER

    @cached_property
    def shown(self) -> Record:
        """The record that represents the case: a failed repeat if any, else one that ran, else a skipped one."""
        return min(self.records, key=lambda record: (Failed, Measured, Checked, Skipped).index(type(record.outcome)))

    @property
    def outcome(self) -> Outcome:
        return self.shown.outcome

    @cached_property
    def measured_figures(self) -> CaseFigures | None:
        """The figures over the repeats that were measured, even if other repeats failed; None if none was measured."""
        return case_figures(self.records) if self.measured else None

    @property
    def figures(self) -> CaseFigures | None:
        """The figures over all repeats; None where the case failed or was skipped."""
        return self.measured_figures if isinstance(self.outcome, Measured) else None

    @cached_property
    def command(self) -> str:
        """The command that measures this case again."""
        return command(self.case, self.manifest, repeats=len(self.records), failed=self.shown)

    @cached_property
    def bound(self) -> Bound | None:
        """The bound of the steps of the case; None if it is not known, as on the CPU."""
        return case_bound(self.measured)

    @property
    def reason(self) -> str:
        """The reason why the case was skipped or failed, or the fault of its figures; empty if it passed."""
        outcome = self.outcome
        if isinstance(outcome, Skipped):
            return outcome.reason
        if isinstance(outcome, Failed):
            repeats = f" (in {len(self.failures)} of {len(self.records)} repeats)" if len(self.records) > 1 else ""
            return f"{outcome.kind} in {outcome.stage}: {outcome.message}{repeats}"
        if self.wrong_checks:
            return f"its results are not eager's: {self.wrong_checks[0].reason}"
        found = [why for measured in self.measured for why in refusals(measured)]
        found += [unsteady_words(late) for measured in self.measured for late in late_compilations(measured)]
        return next(iter(found), "")


class ReportData(msgspec.Struct, frozen=True, kw_only=True):
    """The content of a report, from one or more runs."""

    runs: tuple[Run, ...]
    cases: tuple[CaseResult, ...]
    not_run: int  # cases that were planned and have no record
    repeats_not_run: int = 0  # planned processes without a record, of cases that have one
    superseded: int  # records of an earlier run whose case a later run has measured again
    #: Of the host whose times are shown: how many times as long as the reference host it takes.
    host: float | None = None

    @property
    def manifest(self) -> Manifest:
        return self.runs[0].manifest

    @property
    def records(self) -> tuple[Record, ...]:
        return tuple(record for result in self.cases for record in result.records)

    @property
    def device_names(self) -> set[str]:
        return {result.figures.measured.device_name for result in self.cases if result.figures is not None}


def read_report_data(paths: Sequence[Path], *, in_turns: bool = False) -> ReportData:
    """Read runs into one report. If several runs have the same case, the last of them in `paths` counts."""
    runs = tuple(read_run(path, in_turns=in_turns) for path in dict.fromkeys(paths))
    for run in runs:
        _check_stands_with(runs[0], run)
    if not any(run.records for run in runs):
        unreadable = sum(run.damaged_lines for run in runs)
        why = f"none of its {unreadable} lines can be read" if unreadable else "holds no records yet"
        raise StoreError(f"{', '.join(str(run.path) for run in runs)}: {why}")
    found: dict[Case, CaseResult] = {}
    superseded = 0
    for run in runs:
        for result in case_results(run):
            superseded += len(found[result.case].records) if result.case in found else 0
            found[result.case] = result
    planned = {case.first_repeat() for run in runs for case in run.manifest.cases}
    return ReportData(
        runs=runs,
        cases=tuple(found.values()),
        not_run=len(planned - set(found)),
        repeats_not_run=sum(_repeats_not_run(run, found) for run in runs),
        superseded=superseded,
    )


def _repeats_not_run(run: Run, found: Mapping[Case, CaseResult]) -> int:
    """The number of planned repeats without a record, over the cases that this run has measured."""
    have = {record.case for result in found.values() if result.run == run.path for record in result.records}
    cases = {case.first_repeat() for case in have}
    return sum(case not in have and case.first_repeat() in cases for case in run.manifest.cases)


def case_results(run: Run, records: Iterable[Record] | None = None) -> list[CaseResult]:
    """The cases of a run that have a record, in the plan's order, from all its records or only from `records`."""
    return [
        CaseResult(
            case=case,
            records=tuple(group),
            domain=run.manifest.domains.get(case.model),
            manifest=run.manifest,
            run=run.path,
        )
        for case, group in by_case(run.records if records is None else records).items()
    ]


def by_case(records: Iterable[Record]) -> dict[Case, list[Record]]:
    """Records by case with repeat 0, in the order of each case's first record."""
    found: dict[Case, list[Record]] = {}
    for record in records:
        found.setdefault(record.case.first_repeat(), []).append(record)
    return found


def _check_stands_with(first: Run, other: Run) -> None:
    if why := why_not_together(first.manifest, other.manifest):
        raise StoreError(
            f"{first.path} and {other.path} can't stand in one report: {why}. "
            "Report each alone, or compare them with `torchzoo compare`"
        )


# --- a case by its words ---

SHOWN = 5  # matching cases that a message lists


def find_case(results: Sequence[CaseResult], words: Sequence[str]) -> CaseResult:
    """The case whose label (`resnet18 train cuda inductor bs16`) is these words, or the only case that has them all.

    Each word, which may be a glob, matches one word of the label: the model, the mode, the device, the backend ...
    """
    asked = [part for word in words for part in word.split()]
    exact = [result for result in results if result.case.label().split() == asked]
    found = exact or [result for result in results if _has_all(result, asked)]
    text = " ".join(asked)
    if not found:
        known = dict.fromkeys(word for result in results for word in result.case.label().split())
        hints = [nearest(word, known) for word in asked if not any(fnmatchcase(other, word) for other in known)]
        hint = " ".join(filter(None, hints)) or "`torchzoo report RUN` lists its cases"
        raise UsageError(f"no case of the run matches '{text}': {hint}")
    if len(found) > 1:
        labels = [result.case.label() for result in found]
        more = f" and {len(labels) - SHOWN} more" if len(labels) > SHOWN else ""
        raise UsageError(f"{len(labels)} cases match '{text}', add words of one: {'; '.join(labels[:SHOWN])}{more}")
    return found[0]


def _has_all(result: CaseResult, asked: Sequence[str]) -> bool:
    label = result.case.label().split()
    return all(any(fnmatchcase(word, pattern) for word in label) for pattern in asked)
