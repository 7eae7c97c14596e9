"""Trials from made-up results."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec

from examples import CASE, INDUCTOR, manifest
from torchzoo.case import Case
from torchzoo.measure.trial_records import Took, TrialRecord
from torchzoo.record import Failed, Skipped
from torchzoo.run.trial_store import Trials


def case_of(model: str, **changes: Any) -> Case:
    return msgspec.structs.replace(CASE, model=model, backend=INDUCTOR, **changes)


def trial(case: Case, variant: str, number: int, result: Any) -> TrialRecord:
    outcome = result if isinstance(result, Skipped | Failed) else Took(result=msgspec.to_builtins(result))
    return TrialRecord(
        case=case, variant=variant, number=number, outcome=outcome, finished_at="2026-11-23T10:00:00.000+00:00"
    )


def trials_of(*records: TrialRecord, **changes: Any) -> Trials:
    cases = tuple(dict.fromkeys(record.case for record in records))
    return Trials(path=Path("/nowhere"), manifest=manifest(cases=cases, **changes), records=records)
