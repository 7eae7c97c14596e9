"""Studies: their plans name the right cases, their published figures are the source's, the command does as it says."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from benchmark_runs import STUDIES, beside
from study_records import of_plan, study_table

from kept_runs import keep
from torchzoo import cli
from torchzoo.case import Case, Mode, Precision
from torchzoo.run.resources import part_of
from torchzoo.settings import CacheMode, Pass, Settings, Stage
from torchzoo.studies import study
from torchzoo.studies.userbenchmark import Choice
from torchzoo.zoo.suites import read_suite

PAPER = len(read_suite("torchbench").models)


@pytest.fixture(scope="module")
def planned(tmp_path_factory: pytest.TempPathFactory) -> dict[str, list[Case]]:
    """The cases of each study's plan that can run, on a GPU."""
    folder = tmp_path_factory.mktemp("studies")
    plans = {name: study.planned(study.load(name).plan(Choice(folder=folder / name))) for name in STUDIES}
    return {name: [one.case for one in plan if one.resolved is None] for name, plan in plans.items()}


def axis(cases: list[Case], name: str) -> set[str]:
    return {str(getattr(case, name)) for case in cases}


def settings(name: str, folder: Path) -> Settings:
    return study.load(name).plan(Choice(folder=folder)).settings


# --- plans ---


@pytest.mark.parametrize("name", ["paper_breakdown", "paper_compilers", "paper_devices", "paper_optimizations"])
def test_the_papers_studies_are_about_its_84_models_in_both_modes(name: str, planned: dict[str, list[Case]]) -> None:
    assert axis(planned[name], "mode") == {"train", "eval"}
    eager_only = {"mobilenet_v2_quantized_qat", "resnet50_quantized_qat"}
    assert axis(planned[name], "model") | eager_only == {*read_suite("torchbench").models}


def test_the_breakdown_profiles_eager(planned: dict[str, list[Case]], tmp_path: Path) -> None:
    assert axis(planned["paper_breakdown"], "backend") == {"eager"}
    assert set(settings("paper_breakdown", tmp_path).passes) == {Pass.BREAKDOWN, Pass.FLOPS}


def test_compilers_measures_the_memory_of_each_side_in_a_process_of_its_own(
    planned: dict[str, list[Case]], tmp_path: Path
) -> None:
    assert axis(planned["paper_compilers"], "backend") == {"inductor"}
    assert settings("paper_compilers", tmp_path).passes == (Pass.MEMORY_ALONE,)
    assert settings("paper_compilers", tmp_path).cache is CacheMode.WARM  # filled by that process
    limits = settings("paper_compilers", tmp_path).limits
    assert (
        max(limits.of(stage) for stage in (Stage.ALONE, Stage.PRIME, Stage.COMPILE)) < 540
    )  # else one case could take a whole call


def test_devices_are_compared_at_both_precisions_and_the_same_batches(planned: dict[str, list[Case]]) -> None:
    assert axis(planned["paper_devices"], "precision") == {"fp32", "tf32"}
    assert axis(planned["paper_devices"], "backend") == {"eager"}


def test_the_api_study_takes_small_steps_of_all_models_in_all_modes(
    planned: dict[str, list[Case]], tmp_path: Path
) -> None:
    assert axis(planned["paper_api"], "model") >= {*read_suite("mlperf").models, *read_suite("torchbench").models}
    assert axis(planned["paper_api"], "mode") == {"train", "eval", "prefill", "decode"}
    assert settings("paper_api", tmp_path).passes == (Pass.API,)


def test_optimizations_are_tried_where_they_mean_something(planned: dict[str, list[Case]]) -> None:
    cases = planned["paper_optimizations"]
    trained = [case for case in cases if case.mode is Mode.TRAIN]
    assert axis(trained, "backend") == {
        *(f"paper_optimizations/zero_grad:{how}" for how in ("kernels", "foreach", "none")),
        *(f"paper_optimizations/optimizer:{how}" for how in ("for-loop", "foreach", "fused")),
        "paper_optimizations/rsqrt",
    }
    assert axis([case for case in cases if case.backend.name.endswith("/rsqrt")], "model") == {"hf_Reformer"}
    assert axis([case for case in cases if case.backend.name.endswith("/offload")], "mode") == {"eval"}
    of_resnet = [str(case.backend) for case in cases if case.model == "resnet18"]
    assert len(of_resnet) == 7


def test_parts_of_the_optimizations_have_each_model_once_with_all_that_its_figure_needs(tmp_path: Path) -> None:
    request = study.load("paper_optimizations").plan(Choice(folder=tmp_path))
    parts = [[one.case for one in study.planned(part_of(request, number, 4))] for number in (1, 2, 3, 4)]
    whole = {one.case for one in study.planned(request)}
    assert sorted(map(len, parts)) == [len(whole) // 4] * 4
    assert {case for cases in parts for case in cases} == whole
    models = [{case.model for case in cases} for cases in parts]
    assert sum(map(len, models)) == PAPER  # both ways to zero gradients are of one part


def test_nanogpt_is_trained_in_whole_iterations(planned: dict[str, list[Case]], tmp_path: Path) -> None:
    cases = planned["nanogpt"]
    assert {(case.model, case.batch_size) for case in cases} == {
        ("nanogpt_gpt2_iteration", 12),
        ("nanogpt_shakespeare", 64),
    }
    assert axis(cases, "backend") == {"eager", "cudagraphs", "inductor"}
    assert axis(cases, "precision") == {"amp_bf16"}
    assert study.load("nanogpt").plan(Choice(folder=tmp_path)).jobs == 1


def test_resnets_are_trained_with_and_without_loading_images(planned: dict[str, list[Case]]) -> None:
    cases = planned["resnets"]
    assert axis(cases, "model") == {f"timm_resnet{n}{how}" for n in (18, 34) for how in ("", "_images")}
    assert axis(cases, "backend") == {"eager", "torchscript:script", "inductor"}
    assert {case.batch_size for case in cases} == {128}


def test_gpt2_modes_has_every_mode_at_amp_one_case_at_a_time(planned: dict[str, list[Case]], tmp_path: Path) -> None:
    cases = planned["gpt2_modes"]
    assert axis(cases, "model") == {"hf_GPT2", "hf_GPT2_xl"}
    inductor = [f"inductor:{mode}" for mode in ("reduce-overhead", "max-autotune")]
    assert axis(cases, "backend") == {"eager", "inductor", *inductor}
    assert axis(cases, "precision") == {"amp"}
    assert study.load("gpt2_modes").plan(Choice(folder=tmp_path)).jobs == 1


def test_the_claim_is_about_training_at_both_precisions_with_results_checked(tmp_path: Path) -> None:
    request = study.load("pt2_claim").plan(Choice(folder=tmp_path))
    assert (request.suites, request.axes.modes) == (("pt2_163",), (Mode.TRAIN,))
    assert request.axes.precisions == (Precision.TF32, Precision.AMP)  # the harness allowed TF32 in float32
    assert request.settings.passes == (Pass.CHECK,)


@pytest.mark.parametrize("name", STUDIES)
def test_named_models_replace_the_plans_own(name: str, tmp_path: Path) -> None:
    plan = study.load(name).plan
    chosen = plan(Choice(patterns=("resnet18",), folder=tmp_path))
    assert (chosen.patterns, chosen.suites) == (("resnet18",), ())
    assert plan(Choice(suites=("smoke",), folder=tmp_path)).suites == ("smoke",)


def test_plans_and_documents_need_no_torch(tmp_path: Path) -> None:
    code = f"""
import sys
from pathlib import Path
from torchzoo.studies import study
from torchzoo.studies.userbenchmark import Choice
for name in {STUDIES}:
    assert study.planned(study.load(name).plan(Choice(folder=Path({str(tmp_path)!r}) / name))), name
assert 'torch' not in sys.modules
"""
    done = subprocess.run([sys.executable, "-c", code], check=False, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


# --- published figures ---

#: Some figures of each source, as they were published: study, table, name, value.
SOURCES: list[tuple[str, str, str, Any]] = [
    ("paper_breakdown", "Table 2, train", "computer_vision: active", 53.1),
    ("paper_breakdown", "Table 2, train", "reinforcement_learning: movement", 5.0),
    ("paper_breakdown", "Table 2, eval", "recommendation: idle", 48.5),
    ("paper_breakdown", "Table 2, eval", "all: active", 55.4),
    ("paper_compilers", "Speedup of inductor over eager", "eval", 1.46),
    ("paper_compilers", "CPU memory, change of the peak (CM - 1)", "train", -71.2),
    ("paper_compilers", "GPU memory, change of the peak (GM - 1)", "eval", 51.1),
    ("paper_api", "API coverage over MLPerf's models", "API surface", 2.3),
    ("paper_optimizations", "Models that gain", "train", 41),
    ("paper_optimizations", "Mean speedup", "train", 1.34),
    ("nanogpt", "Table 1, time of an iteration", "gpt2, inductor", (2640.227, 5.773)),
    ("nanogpt", "Table 2, model FLOPs utilisation", "shakespeare, cudagraphs", (21.916, 0.653)),
    ("resnets", "Table 3, time of an iteration", "resnet18, torchscript", (0.144, 0.049)),
    ("gpt2_modes", "Memory of the first step", "reduce-overhead", 5736),
    ("gpt2_modes", "A step, eval", "default", 30),
    ("pt2_claim", "Works", "both precisions", 93),
    ("pt2_claim", "Faster in training", "amp", 51),
]


@pytest.mark.parametrize(("name", "table", "figure", "value"), SOURCES)
def test_published_figures_are_those_of_the_source(name: str, table: str, figure: str, value: Any) -> None:
    assert study.load(name).published.tables[table].figures[figure] == value


# --- the command ---


def test_studies_are_listed(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["study"]) == 0
    assert [line.split()[0] for line in capsys.readouterr().out.splitlines()] == list(STUDIES)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["nanogtp"], "did you mean nanogpt?"),
        (["optim"], "optim is no study: `torchzoo userbenchmark optim`"),
        (["nanogpt", "--from", "/no/such"], "no run in /no/such"),
        (["nanogpt", "--from", "/no/such", "--dry-run"], "leave out --dry-run"),
        (["nanogpt", "--resume", "/no/such", "-t", "eval"], "leave out --mode"),
        (["nanogpt", "--retry-failed"], "goes with --resume"),
    ],
)
def test_wrong_usage_is_one_clear_line(arguments: list[str], words: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["study", *arguments]) == cli.USAGE
    shown = capsys.readouterr()
    assert words in shown.err
    assert len(shown.err.splitlines()) == 1


def test_a_dry_run_shows_the_cases_and_measures_nothing(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    words = ["resnet18", "-t", "train", "-d", "cpu", "--bs", "smoke"]
    assert cli.main(["study", "paper_optimizations", *words, "--dry-run"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "resnet18 train cpu paper_optimizations/zero_grad:kernels bs2"
    assert "6 cases to run; 8 s of timing a case at most; passes: none" in lines
    assert any(line.startswith("not run (1 case): paper_optimizations/offload: ") for line in lines)
    assert (
        cli.main(
            ["study", "paper_optimizations", *words, "--backend", "paper_optimizations/zero_grad:kernels", "--dry-run"]
        )
        == 0
    )
    assert capsys.readouterr().out.splitlines()[0] == lines[0]
    assert list(tmp_path.iterdir()) == []


def test_parts_have_each_model_once(capsys: pytest.CaptureFixture[str]) -> None:
    shown = []
    for number in (1, 2, 3):
        words = ["--suite", "study_modes,study_cnn,study_llm", "-t", "eval", "-d", "cpu", "--part", f"{number}/3"]
        assert cli.main(["study", "paper_breakdown", *words, "--dry-run"]) == 0
        shown.append([line.split()[0] for line in capsys.readouterr().out.splitlines() if " eval " in line])
    assert [len(one) for one in shown] == [2, 2, 2]
    models = {"hf_GPT2", "hf_GPT2_xl", "timm_resnet18", "timm_resnet34", "nanogpt_gpt2", "nanogpt_shakespeare"}
    assert {name for one in shown for name in one} == models
    assert cli.main(["study", "paper_breakdown", "resnet18", "--part", "1/2", "--dry-run"]) == cli.USAGE
    assert "only 1 models" in capsys.readouterr().err
    for wrong in ("3/2", "0/2", "2", "a/b"):
        with pytest.raises(SystemExit):
            cli.main(["study", "paper_breakdown", "--part", wrong, "--dry-run"])


def test_a_document_is_made_from_kept_runs_with_reasons_that_have_evidence(tmp_path: Path) -> None:
    run = keep(tmp_path / "run", [of_plan("paper_devices")])
    reasons = run / study.REASONS
    written = ["study", "paper_devices", "--from", str(run), "-o", str(tmp_path / "out")]
    reasons.write_text(f"- {{table: '{study_table()}', figure: all, reason: none, evidence: ''}}")
    assert cli.main(written) == cli.USAGE
    reasons.write_text(f"- {{table: '{study_table()}', figure: all, reason: one run alone, evidence: this run}}")
    assert cli.main(written) == 0
    text = (tmp_path / "out" / "paper_devices.md").read_text()
    assert beside(text, study_table())["all"][1].startswith("not measured: it needs two runs")
    assert f"torchzoo study paper_devices --from {run}" in text
    assert "- machine: a CPU, 2 cores" in text
    assert "- date: 2026-11-20" in text
