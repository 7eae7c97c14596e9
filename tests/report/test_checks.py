"""How many cases compute what eager computes, and why the others are not called correct."""

from __future__ import annotations

from pathlib import Path

from examples import INDUCTOR, record
from kept_runs import against_eager, failed, incorrect, keep
from torchzoo.analysis.cases import read_report_data
from torchzoo.record import Check, CheckStatus
from torchzoo.report import checks

UNDECIDED = Check(status=CheckStatus.NONDETERMINISTIC, reason="eager differs by 3%")
LOST = Check(status=CheckStatus.NOT_REACHED, reason="crashed in check: it was killed")
PARTLY = Check(status=CheckStatus.PARTLY_CORRECT, reason="nothing to judge by: gradients: for 22 of 113 tensors")
NOTHING = Check(status=CheckStatus.REFERENCE_FAILED, reason="fp64 does not fit")


def test_the_worst_process_decides_and_what_failed_or_was_not_checked_is_not_correct(tmp_path: Path) -> None:
    fine = against_eager(2.0)
    records = [
        record(fine, backend=INDUCTOR, model="right"),
        record(fine, backend=INDUCTOR, model="once_wrong"),
        record(incorrect(2.0), backend=INDUCTOR, model="once_wrong", repeat=1),
        record(against_eager(2.0, check=UNDECIDED), backend=INDUCTOR, model="dice"),
        record(against_eager(2.0, check=NOTHING), backend=INDUCTOR, model="huge"),
        record(against_eager(2.0, check=PARTLY), backend=INDUCTOR, model="rough"),
        record(fine, backend=INDUCTOR, model="half"),
        record(against_eager(2.0, check=None), backend=INDUCTOR, model="half", repeat=1),
        record(incorrect(2.0), backend=INDUCTOR, model="half_wrong"),
        record(against_eager(2.0, check=None), backend=INDUCTOR, model="half_wrong", repeat=1),
        record(failed(), backend=INDUCTOR, model="fails"),
        record(against_eager(2.0, check=LOST), backend=INDUCTOR, model="lost"),
        record(model="right"),
    ]
    cases = read_report_data([keep(tmp_path / "run", records)]).cases
    of_inductor, of_eager = (dict(zip(checks.HEADINGS, row, strict=True)) for row in checks.rows(cases))
    assert of_inductor == {
        "results checked": "inductor on cpu, eval",
        "correct": "1",
        "partly correct": "1",
        "not reached": "1",
        "no reference": "1",
        "nondeterministic": "1",
        "incorrect": "2",
        "not checked": "1",
    }
    assert (of_eager["results checked"], of_eager["not checked"]) == ("eager on cpu, eval", "1")
    assert [(label.split()[0], word, reason) for label, word, reason in checks.reasons(cases)] == [
        ("once_wrong", "incorrect", "loss is off by 40%"),
        ("dice", "nondeterministic", "eager differs by 3%"),
        ("huge", "no reference", "fp64 does not fit"),
        ("rough", "partly correct", "nothing to judge by: gradients: for 22 of 113 tensors"),
        ("half_wrong", "incorrect", "loss is off by 40%"),
        ("lost", "not reached", "crashed in check: it was killed"),
    ]
    assert checks.rows(read_report_data([keep(tmp_path / "other", [record(model="right")])]).cases) == []
