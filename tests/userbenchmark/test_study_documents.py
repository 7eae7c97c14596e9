"""Documents of studies from made-up records: undecided models, changes of both ways, and what no committed run has."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from benchmark_runs import beside, report, run_of, table
from study_records import CRASHED, alone, late, trained, with_domains

from examples import INDUCTOR, in_turns, measured, variant_result
from torchzoo.case import Backend, Domain, Mode
from torchzoo.record import ApiSurface, Breakdown, Record, StepTime
from torchzoo.studies import study


def test_compilers_counts_unsteady_models_apart_and_says_which_they_are() -> None:
    run = run_of(
        [
            trained("a", in_turns(0.2, 0.1), INDUCTOR),
            trained("b", in_turns(0.2, 0.02, variants=late()), INDUCTOR),
            trained("c", CRASHED, INDUCTOR),
        ]
    )
    text = report("paper_compilers", run)
    speedup = beside(text, "Speedup of inductor over eager")["train"][1]
    assert speedup == "2.00 times (1 model: too few for an interval); 1 of 3 counted, 1 unsteady, 1 failed"
    assert {row[0]: row[-1] for row in table(text, "model")}["b"].startswith(
        "unsteady, in no mean: compiled 1 more graphs while it was measured"
    )


def test_api_coverage_of_all_of_torchzoo_is_there_where_a_run_has_more_models() -> None:
    def figures(*models: str) -> set[str]:
        surface = ApiSurface(functions=("a",), operators=("x",))
        run = run_of([trained(model, measured(api=surface)) for model in models])
        return set(beside(report("paper_api", run), "API coverage over MLPerf's models"))

    both = figures("demucs", "unet3d")
    assert figures("demucs", "unet3d", "fno2d") - both >= {"functions, all of torchzoo"}
    assert not [name for name in both if "torchzoo" in name]


def test_the_breakdown_of_a_domain_with_one_model_has_no_spread() -> None:
    steps = (StepTime(0.5, 0.2, 0.1),) * 6
    outcome = measured(variants={"eager": variant_result(breakdown=Breakdown(steps=steps, kernels=()))})
    run = with_domains(run_of([trained(name, outcome) for name in "abc"]), a=Domain.NLP, b=Domain.NLP, c=Domain.SPEECH)
    spreads = {row[0]: "[" in row[1] for row in table(report("paper_breakdown", run), "domain")}
    assert spreads == {"nlp": True, "speech": False, "all": True}


# --- paper_optimizations ---


def changed(model: str, own_s: float, changed_s: float, *backend: str, **axes: Any) -> Record:
    return trained(model, in_turns(own_s, changed_s), Backend(*backend), **axes)


def test_a_gain_in_evaluation_must_be_above_three_percent() -> None:
    found = [changed(f"m{n}", 0.1, times, "offload", mode=Mode.EVAL) for n, times in enumerate((0.102, 0.104))]
    unsure = in_turns(0.1, 0.9)
    unsure = msgspec.structs.replace(unsure, blocks=unsure.blocks[:8])  # two quads: an interval at 50%
    found.append(trained("m2", unsure, Backend("offload"), mode=Mode.EVAL))
    text = report("paper_optimizations", run_of(found))
    (kept,) = [
        name for name in beside(text, "Models that gain") if name.startswith("eval, networks kept on the device")
    ]
    assert beside(text, "Models that gain")[kept][1] == "1 models; of 2 decided; 0 lose; 1 undecided"
    assert beside(text, "Largest speedup")[kept][1].endswith("; m1")  # m2's is larger, and not decided


def test_the_papers_changes_are_both_ways_to_zero_gradients_and_in_reformer_the_square_root() -> None:
    slow = in_turns(0.5, 1.0)
    slow = msgspec.structs.replace(slow, blocks=slow.blocks[:8])  # two quads
    run = run_of(
        [
            changed("hf_Reformer", 0.1, 0.2, "zero_grad", "kernels"),
            changed("hf_Reformer", 0.1, 0.125, "zero_grad", "foreach"),  # the default is better, and is not the paper's
            changed("hf_Reformer", 0.1, 0.15, "rsqrt"),
            changed("resnet18", 0.1, 0.1, "zero_grad", "kernels"),
            changed("resnet18", 0.1, 0.1, "zero_grad", "foreach"),
            trained("vgg16", slow, Backend("zero_grad", "kernels")),
            changed("vgg16", 0.5, 0.5, "zero_grad", "foreach"),
            changed("alexnet", 0.1, 0.5, "zero_grad", "kernels"),
        ]
    )
    text = report("paper_optimizations", run)
    assert (
        beside(text, "Models that gain")["train, the paper's optimizations instead of what was before them"][1]
        == "1 models; of 2 decided; 0 lose; 1 undecided"
    )
    mean = beside(text, "Mean speedup")
    assert mean["train, the paper's optimizations instead of what was before them, those that gain"][1].startswith(
        "2.40 times"
    )  # 2 / 1.25 * 1.5
    assert mean["train, the paper's optimizations instead of what was before them, all"][1].endswith(
        "; 3 models; no difference is sure"
    )


def test_models_that_are_all_undecided_gain_nothing_and_lose_nothing() -> None:
    slow = in_turns(0.1, 0.2)
    slow = msgspec.structs.replace(slow, blocks=slow.blocks[:4])  # one quad of each of two models
    text = report("paper_optimizations", run_of([trained(name, slow, Backend("offload")) for name in ("one", "two")]))
    kept = "train, networks kept on the device instead of moved to the host and back before each step"
    assert beside(text, "Models that gain")[kept][1:3] == [
        "not measured: none of 2 models has the six quads that decide it",
        "",
    ]
    assert beside(text, "Mean speedup")[f"{kept}, all"][1].endswith("2 models; no difference is sure")


@pytest.mark.parametrize(
    ("name", "records"),
    [
        ("nanogpt", [trained("nanogpt_gpt2", alone(0.1))]),
        ("paper_breakdown", [trained("vgg16", alone(0.1))]),
        ("paper_compilers", [trained("vgg16", CRASHED, INDUCTOR)]),
    ],
    ids=["not in this study", "without a breakdown", "nothing counts"],
)
def test_a_document_without_a_picture_shows_none(name: str, records: list[Record]) -> None:
    run = run_of(records)
    assert study.document(study.load(name), [run]).picture is None
    assert "![" not in report(name, run)
