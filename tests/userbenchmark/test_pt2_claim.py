"""The report beside PyTorch 2.0's claim: pass rates, means by precision and collection, and reasons."""

from __future__ import annotations

from typing import Any

import pytest
import study_records
from benchmark_runs import beside, report, run_of, table
from study_records import CRASHED, late

from examples import INDUCTOR, in_turns
from kept_runs import checked
from torchzoo.case import Precision
from torchzoo.record import Check, CheckStatus, Failed, FailureKind, Measured, Record
from torchzoo.settings import Stage

TF32, AMP = Precision.TF32, Precision.AMP


CORRECT = Check(status=CheckStatus.CORRECT)
VERDICTS = {"a": CheckStatus.CORRECT, "b": CheckStatus.INCORRECT, "c": CheckStatus.REFERENCE_FAILED}


def faster(times: float, *, check: Check | None = CORRECT, **changes: Any) -> Measured:
    return in_turns(0.2, 0.2 / times, check=check, **changes)


def trained(model: str, precision: Precision, outcome: Any) -> Record:
    return study_records.trained(model, outcome, INDUCTOR, precision=precision, device="cpu")


@pytest.mark.parametrize(
    ("stage", "share", "of_timm"),
    [
        (Stage.BUILD, "1 of 1 cases; 1 more did not run in eager", "eager runs in none"),
        (Stage.WARM_UP, "1 of 1 cases; 1 more did not run in eager", "eager runs in none"),
        (Stage.COMPILE, "1 of 2 cases", "0 of 1, 0.0%"),
        (Stage.MEASURE, "1 of 2 cases", "0 of 1, 0.0%"),
        (Stage.CHECK, "1 of 2 cases", "0 of 1, 0.0%"),
    ],
)
def test_what_fails_before_it_is_compiled_is_no_failure_of_the_compiler(stage: Stage, share: str, of_timm: str) -> None:
    failed = Failed(kind=FailureKind.ERROR, stage=stage, message="no memory")
    made = report("pt2_claim", run_of([trained("hf:One", AMP, faster(2)), trained("timm:two", AMP, failed)]))
    assert beside(made, "Works")["amp"][1].endswith(f"; {share}")
    assert beside(made, "Works")["both precisions, of all models"][1].endswith("; 1 of 2 cases")
    assert {row[0]: row[2] for row in table(made, "collection")}["timm"] == of_timm


def test_slowdowns_count_as_1_in_means_of_their_own() -> None:
    made = report(
        "pt2_claim",
        run_of([trained(name, kind, faster(times)) for kind in (TF32, AMP) for name, times in (("a", 4), ("b", 0.25))]),
    )
    speed = beside(made, "Faster in training")
    assert speed["amp"][1].startswith("0 % (2 models")
    assert speed["amp, slowdowns as 1"][0] == "51 %"
    assert speed["amp, slowdowns as 1"][1].startswith("100 % (2 models")
    assert speed["amp, slowdowns as 1"][1].endswith("; 2 of 2 counted")
    assert speed["both precisions, slowdowns as 1"][0] == "43 %"
    assert speed["both precisions, slowdowns as 1"][1].startswith("100 % (")


def test_both_precisions_of_a_model_are_one_model() -> None:
    """Not two: the interval of the share is as wide as with one of them."""
    cases = [trained(f"m{number}", TF32, faster(2) if number < 5 else CRASHED) for number in range(10)]
    twice = [*cases, *(trained(one.case.model, AMP, one.outcome) for one in cases)]
    of = [beside(report("pt2_claim", run_of(some)), "Works")["both precisions"][1] for some in (cases, twice)]
    assert of[0].partition(";")[0] == of[1].partition(";")[0]


@pytest.mark.parametrize("status", [CheckStatus.NONDETERMINISTIC, CheckStatus.REFERENCE_FAILED])
def test_a_case_without_a_verdict_is_counted_and_does_not_work(status: CheckStatus) -> None:
    unknown = faster(2, check=Check(status=status, reason="eager differs"))
    made = report("pt2_claim", run_of([trained("hf:One", AMP, faster(2)), trained("timm:two", AMP, unknown)]))
    assert beside(made, "Works")["amp"][1].endswith("; 1 of 2 cases, 1 without a verdict")


def test_what_was_checked_without_timing_works_and_has_no_speedup() -> None:
    made = report("pt2_claim", run_of([trained(name, AMP, checked(status)) for name, status in VERDICTS.items()]))
    assert beside(made, "Works")["amp"][1].endswith("; 1 of 3 cases, 1 without a verdict")
    assert beside(made, "Faster in training")["amp"][1].startswith("not measured")


def test_an_unsteady_model_works_and_its_speedup_is_in_no_mean() -> None:
    run = run_of([trained("hf:One", AMP, faster(2)), trained("timm:two", AMP, faster(9, variants=late()))])
    made = report("pt2_claim", run)
    assert beside(made, "Works")["amp"][1].endswith("; 2 of 2 cases")
    assert beside(made, "Faster in training")["amp"][1].startswith(
        "100 % (1 model: too few for an interval); 1 of 2 counted, 1 unsteady"
    )
    (row,) = table(made, "case")
    assert row[1] == "unsteady"


def test_without_a_check_nothing_is_said_of_what_works() -> None:
    run = run_of([trained("hf:One", AMP, faster(2)), trained("timm:two", AMP, faster(2, check=None))])
    made = report("pt2_claim", run)
    assert beside(made, "Works")["amp"][1] == (
        "not measured: the results of 1 of the 2 cases were not checked: measure with --check"
    )
    assert {row[0]: row[2] for row in table(made, "collection")} == {
        "HuggingFace": "1 of 1, 100.0%",
        "timm": "not checked",
    }
