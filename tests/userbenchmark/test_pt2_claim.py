"""The report beside PyTorch 2.0's claim: pass rates, means by precision and collection, and reasons."""

from __future__ import annotations

from typing import Any

import pytest
from benchmark_runs import beside, figures, report, run_of, table
from syrupy.assertion import SnapshotAssertion

from examples import INDUCTOR, measured, variant_result
from examples import record as example
from kept_runs import checked
from torchzoo.case import Mode, Precision
from torchzoo.record import Block, Check, CheckStatus, Compilation, Failed, FailureKind, Measured, Record, Skipped
from torchzoo.settings import Stage
from torchzoo.zoo.suites import read_suite

TF32, AMP = Precision.TF32, Precision.AMP
CRASHED = Failed(kind=FailureKind.ERROR, stage=Stage.COMPILE, message="no such lowering")


CORRECT = Check(status=CheckStatus.CORRECT)


VERDICTS = {"a": CheckStatus.CORRECT, "b": CheckStatus.INCORRECT, "c": CheckStatus.REFERENCE_FAILED}


def faster(times: float, *, late_graphs: int = 0, check: Check | None = CORRECT) -> Measured:
    """A candidate that many times as fast as eager."""
    quad = [Block("eager", (0.2,)), *[Block("candidate", (0.2 / times,))] * 2, Block("eager", (0.2,))]
    compilation = Compilation(graphs=1 + late_graphs, late_graphs=late_graphs)
    variants = {"eager": variant_result(), "candidate": variant_result(compilation=compilation)}
    return measured(blocks=tuple(quad * 8), variants=variants, check=check)


def trained(model: str, precision: Precision, outcome: Any) -> Record:
    return example(outcome, model=model, mode=Mode.TRAIN, precision=precision, backend=INDUCTOR)


def text() -> str:
    """Four models at each precision; one of each kind of those that do not pass."""
    wrong = faster(100, check=Check(status=CheckStatus.INCORRECT, reason="outputs differ"))
    slow, quick = faster(1.25), faster(2)
    return report(
        "pt2_claim",
        run_of(
            [
                trained("hf:One", TF32, slow),
                trained("hf:One", AMP, quick),
                trained("timm:two", TF32, slow),
                trained("timm:two", AMP, wrong),
                trained("three", TF32, CRASHED),
                trained("three", AMP, quick),
                trained("timm:four", TF32, Skipped(reason="it needs more memory")),
                trained("timm:four", AMP, quick),
                example(CRASHED, model="three", mode=Mode.EVAL, precision=TF32, backend=INDUCTOR),
            ]
        ),
    )


def test_the_claim_stands_beside_the_pass_rate_and_the_means(snapshot: SnapshotAssertion) -> None:
    works = beside(text(), "Works")
    assert works["both precisions"][1].startswith("75.0 % [")  # models: 1, 1/2, 1/2, 1; eval is no part of the claim
    assert works["both precisions, of all models"][1].startswith("62.5 % [")
    assert figures(text()) == snapshot


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


def test_float32_without_tf32_stands_beside_no_figure_of_the_claim() -> None:
    made = report("pt2_claim", run_of([trained("hf:One", Precision.FP32, faster(2))]))
    speed = beside(made, "Faster in training")
    assert (speed["fp32"][0], speed["fp32, slowdowns as 1"][0]) == ("", "")
    assert speed["fp32"][1].startswith("100 %")
    assert speed["tf32"][1] == "not measured: no measured case of this run gives it"


def test_the_suite_has_the_162_models_that_a_library_has() -> None:
    assert len(read_suite("pt2_163").models) == 162


def test_a_run_of_one_precision_has_no_mean_of_both() -> None:
    run = run_of([trained("hf:One", AMP, faster(2))])
    made = report("pt2_claim", run)
    speed = beside(made, "Faster in training")
    assert speed["both precisions"][1:3] == ["not measured: it needs tf32 and amp", ""]
    assert speed["tf32"][1] == "not measured: no measured case of this run gives it"
    assert speed["amp"][1].startswith("100 %")
    assert "Every case counts." in made


def test_an_unsteady_model_works_and_its_speedup_is_in_no_mean() -> None:
    run = run_of([trained("hf:One", AMP, faster(2)), trained("timm:two", AMP, faster(9, late_graphs=1))])
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
