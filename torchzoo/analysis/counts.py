"""How many cases a run planned, and what became of them."""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from torchzoo.analysis.cases import case_results
from torchzoo.analysis.totals import ALL, CaseRatios, Total, total
from torchzoo.case import Case
from torchzoo.record import Failed, FailureKind, Record
from torchzoo.settings import Stage
from torchzoo.store import Run


class RunCounts(msgspec.Struct, frozen=True, kw_only=True):
    """A case that several processes measure counts once, as failed if one of them failed."""

    cases: int  # planned
    repeats: int  # processes that measure each case
    missing: int  # planned processes without a record
    found: Total  # of the cases that have a record; without means


def run_counts(run: Run) -> RunCounts:
    """The counts of a run, finished or not."""
    planned = set(run.manifest.cases)
    return RunCounts(
        cases=sum(case.repeat == 0 for case in planned),
        repeats=max((case.repeat for case in planned), default=0) + 1,
        missing=len(planned - {record.case for record in run.records}),
        found=total(ALL, ALL, case_results(run), CaseRatios(())),
    )


def failures_by_kind(records: Iterable[Record]) -> dict[tuple[FailureKind, Stage], list[Case]]:
    """The cases that failed, by what happened and the stage in which it happened."""
    found: dict[tuple[FailureKind, Stage], list[Case]] = {}
    for record in records:
        if isinstance(record.outcome, Failed):
            found.setdefault((record.outcome.kind, record.outcome.stage), []).append(record.case)
    return found
