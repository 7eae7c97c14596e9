"""Count the cases that a run planned, by their status."""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from torchzoo.analysis.cases import case_results
from torchzoo.analysis.totals import ALL, CaseRatios, Total, total
from torchzoo.case import Case
from torchzoo.record import FailureKind, Measured, Record
from torchzoo.settings import Stage
from torchzoo.store import Run


class RunCounts(msgspec.Struct, frozen=True, kw_only=True):
    """Counts of cases. A case with several processes counts once, as failed if any process failed."""

    cases: int  # planned
    repeats: int  # processes for each case
    missing: int  # planned processes without a record
    found: Total  # counts of the cases that have a record; without means


def run_counts(run: Run) -> RunCounts:
    """The counts of a run, finished or not."""
    planned = set(run.manifest.cases)
    return RunCounts(
        cases=sum(case.repeat == 0 for case in planned),
        repeats=max((case.repeat for case in planned), default=0) + 1,
        missing=len(planned - {record.case for record in run.records}),
        found=total(ALL, ALL, case_results(run), CaseRatios(())),
    )


def failures_by_kind(records: Iterable[Record]) -> dict[tuple[bool, FailureKind, Stage], list[Case]]:
    """The failed cases by whether they were measured before the failure, the kind of failure, and the stage."""
    found: dict[tuple[bool, FailureKind, Stage], list[Case]] = {}
    for record in records:
        if (failed := record.failure) is not None:
            was_measured = isinstance(record.outcome, Measured)
            found.setdefault((was_measured, failed.kind, failed.stage), []).append(record.case)
    return found
