"""What reports are made of: the cases of one run, or of several of the same machine, each with its figures."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import cached_property
from pathlib import Path

import msgspec

from torchzoo.record import EAGER, Case, Failed, Manifest, Measured, Record, Skipped
from torchzoo.report.reproduce import command
from torchzoo.report.rows import Row, by_case, repeated
from torchzoo.runs import SAME
from torchzoo.spec import Domain
from torchzoo.store import Run, StoreError, read_run


class Entry(msgspec.Struct, frozen=True, kw_only=True, dict=True):
    """One case, its repeats taken together. `shown` is the record whose outcome stands for all of them.

    A failure of one repeat is the case's, a measured repeat comes before a skipped one.
    """

    case: Case  # without the number of the repeat
    records: tuple[Record, ...]
    shown: Record
    row: Row | None  # of the measured repeats; None where the outcome shown is not that the case was measured
    domain: Domain | None
    manifest: Manifest
    run: Path

    @property
    def outcome(self) -> Measured | Skipped | Failed:
        return self.shown.outcome

    @property
    def is_incorrect(self) -> bool:
        return any(isinstance(record.outcome, Measured) and record.outcome.is_incorrect for record in self.records)

    @property
    def passes(self) -> bool:
        """Measured, and not found to compute something else than eager does."""
        return self.row is not None and not self.is_incorrect

    @cached_property
    def command(self) -> str:
        """What measures this case again."""
        return command(self.case, self.manifest, repeats=len(self.records), failed=self.shown)

    @property
    def reason(self) -> str:
        """Why it was skipped, how it failed, or what is wrong with its results; empty for a case that passes."""
        outcome = self.outcome
        if isinstance(outcome, Skipped):
            return outcome.reason
        if isinstance(outcome, Failed):
            failed = sum(isinstance(record.outcome, Failed) for record in self.records)
            repeats = f" (in {failed} of {len(self.records)} repeats)" if len(self.records) > 1 else ""
            return f"{outcome.kind} in {outcome.stage}: {outcome.message}{repeats}"
        wrong = [r.outcome.check for r in self.records if isinstance(r.outcome, Measured) and r.outcome.is_incorrect]
        return f"its results are not eager's: {wrong[0].reason}" if wrong and wrong[0] else ""


class Material(msgspec.Struct, frozen=True, kw_only=True):
    """All that a report shows, from one or more runs."""

    runs: tuple[Run, ...]
    entries: tuple[Entry, ...]
    not_run: int  # cases that were planned and have no record
    superseded: int  # records of an earlier run whose case a later run has measured again

    @property
    def manifest(self) -> Manifest:
        return self.runs[0].manifest

    @property
    def records(self) -> tuple[Record, ...]:
        return tuple(record for entry in self.entries for record in entry.records)


def read_material(paths: Sequence[Path]) -> Material:
    """Read runs; of several, those named later stand where they have the same case.

    Raises:
        StoreError: what is there is no run, holds no records, or the runs are not of the same machine and software.
    """
    runs = tuple(read_run(path) for path in dict.fromkeys(paths))
    for run in runs:
        check_same_ground(runs[0], run)
    if not any(run.records for run in runs):
        unreadable = sum(run.damaged_lines for run in runs)
        why = f"none of its {unreadable} lines can be read" if unreadable else "holds no records yet"
        raise StoreError(f"{', '.join(str(run.path) for run in runs)}: {why}")
    found: dict[Case, Entry] = {}
    superseded = 0
    for run in runs:
        for entry in entries_of(run):
            superseded += len(found[entry.case].records) if entry.case in found else 0
            found[entry.case] = entry
    planned = {msgspec.structs.replace(case, repeat=0) for run in runs for case in run.manifest.cases}
    return Material(runs=runs, entries=tuple(found.values()), not_run=len(planned - set(found)), superseded=superseded)


def entries_of(run: Run) -> list[Entry]:
    """The cases of a run that have a record, in the plan's order."""
    return [_entry(case, records, run) for case, records in by_case(run.records).items()]


def _entry(case: Case, records: Sequence[Record], run: Run) -> Entry:
    shown = min(records, key=lambda record: (Failed, Measured, Skipped).index(type(record.outcome)))
    return Entry(
        case=case,
        records=tuple(records),
        shown=shown,
        row=repeated(records) if isinstance(shown.outcome, Measured) else None,
        domain=run.manifest.domains.get(case.model),
        manifest=run.manifest,
        run=run.path,
    )


def check_same_ground(first: Run, other: Run) -> None:
    """Raises `StoreError`, one line, where two runs are of different machines, software or ways to measure."""
    differences = [
        f"{name} is {ours or 'not given'} and {theirs or 'not given'}"
        for name, ours, theirs in _facts(first.manifest, other.manifest)
        if ours != theirs
    ]
    if differences:
        raise StoreError(
            f"{first.path} and {other.path} can't stand in one report: {'; '.join(differences)}. "
            "Report each alone, or hold one against the other with `torchzoo compare`"
        )


def _facts(first: Manifest, other: Manifest) -> Iterable[tuple[str, object, object]]:
    for name in SAME:
        ours, theirs = first.environment.get(name), other.environment.get(name)
        if isinstance(ours, dict) and isinstance(theirs, dict):  # packages: only those that differ
            for key in sorted({*ours, *theirs}):
                yield key, ours.get(key), theirs.get(key)
        else:
            yield name, ours, theirs
    for name in ("threads", "cache"):
        ours, theirs = getattr(first.settings, name), getattr(other.settings, name)
        yield name, ours, theirs


def is_candidate(entry: Entry) -> bool:
    """Whether the case is a backend beside eager."""
    return entry.case.backend != EAGER
