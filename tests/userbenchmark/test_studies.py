"""Studies: their plans name the right cases, their published figures are the source's, the command does as it says."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import msgspec
import pytest
from benchmark_runs import STUDIES, beside, run_of

from examples import INDUCTOR, compared, manifest, measured
from examples import record as example
from kept_runs import keep
from torchzoo import cli, study
from torchzoo.case import EAGER, Case, Mode, Precision
from torchzoo.provenance import machine_kind
from torchzoo.record import Block, Failed, FailureKind, Measured, Record, Skipped
from torchzoo.report.beside import Published
from torchzoo.settings import Pass, Settings, Stage
from torchzoo.store import StoreError, read_run
from torchzoo.userbenchmark import Choice
from torchzoo.zoo.catalog import find_models
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
        *(f"zero_grad:{how}" for how in ("kernels", "foreach", "none")),
        *(f"optimizer:{how}" for how in ("for-loop", "foreach", "fused")),
        "rsqrt",
    }
    assert axis([case for case in cases if case.backend.name == "rsqrt"], "model") == {"hf_Reformer"}
    assert axis([case for case in cases if case.backend.name == "offload"], "mode") == {"eval"}
    of_resnet = [str(case.backend) for case in cases if case.model == "resnet18"]
    assert len(of_resnet) == 7


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
    assert axis(cases, "backend") == {"eager", "torchscript", "inductor"}
    assert {case.batch_size for case in cases} == {128}


def test_gpt2_modes_has_every_mode_at_amp_one_case_at_a_time(planned: dict[str, list[Case]], tmp_path: Path) -> None:
    cases = planned["gpt2_modes"]
    assert axis(cases, "model") == {"hf_GPT2", "hf_GPT2_xl"}
    inductor = [f"inductor:{mode}" for mode in ("reduce-overhead", "max-autotune", "max-autotune-no-cudagraphs")]
    assert axis(cases, "backend") == {"eager", "inductor", *inductor}
    assert axis(cases, "precision") == {"amp"}
    assert study.load("gpt2_modes").plan(Choice(folder=tmp_path)).jobs == 1


def test_the_claim_is_about_training_at_both_precisions_with_results_checked(tmp_path: Path) -> None:
    request = study.load("pt2_claim").plan(Choice(folder=tmp_path))
    assert (request.suites, request.axes.modes) == (("pt2_163",), (Mode.TRAIN,))
    assert request.axes.precisions == (Precision.FP32, Precision.AMP)
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
from torchzoo import study
from torchzoo.userbenchmark import Choice
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


@pytest.mark.parametrize("name", STUDIES)
def test_every_source_is_named_with_its_machine(name: str) -> None:
    published: Published = study.load(name).published
    assert published.source
    assert "NVIDIA" in published.hardware
    assert published.tables


# --- runs ---


def test_runs_of_one_machine_are_joined(tmp_path: Path) -> None:
    first = keep(tmp_path / "first", [example(model="one")])
    second = keep(tmp_path / "second", [example(model="two"), example(model="one", mode=Mode.TRAIN)])
    (run,) = study.read_runs(study.load("paper_breakdown"), [first, second])
    assert [(record.case.model, record.case.mode) for record in run.records] == [
        ("one", "eval"),
        ("two", "eval"),
        ("one", "train"),
    ]
    assert len(run.manifest.cases) == 3


@pytest.mark.parametrize(
    ("name", "model"), [("resnets", "timm_resnet18_images"), ("nanogpt", "nanogpt_gpt2_iteration")]
)
def test_a_run_that_was_moved_finds_its_models(name: str, model: str, tmp_path: Path) -> None:
    path = keep(tmp_path / "moved", [example(model=model)], models_dirs=("/no/such/models",))
    found = study.at_home(study.load(name), read_run(path))
    assert model in find_models(map(Path, found.manifest.models_dirs))
    untouched = read_run(keep(tmp_path / "other", [example(model=model)], models_dirs=(str(tmp_path),)))
    assert study.at_home(study.load(name), untouched) is untouched


def test_the_document_of_joined_runs_names_them_all(tmp_path: Path) -> None:
    first = keep(tmp_path / "first", [example(model="alexnet")], command=("torchzoo", "one"))
    second = keep(tmp_path / "second", [example(model="vgg16")], command=("torchzoo", "two"))
    one = study.load("paper_breakdown")
    text = study.document(one, study.read_runs(one, [first, second]))
    assert f"torchzoo study paper_breakdown --from {first} {second}" in text
    assert "- command: `torchzoo one`\n- command: `torchzoo two`" in text


def test_a_run_that_is_not_finished_goes_on_as_the_study(tmp_path: Path) -> None:
    done, left = example(model="alexnet"), example(model="vgg16")
    first = keep(tmp_path / "first", [done])
    second = keep(tmp_path / "second", [example(model="resnet18")], cases=(example(model="resnet18").case, left.case))
    one = study.load("paper_breakdown")
    text = study.document(one, study.read_runs(one, [first, second]))
    assert f"1 not run yet: go on with `torchzoo study paper_breakdown --resume {second}`" in text


def test_an_interrupted_study_says_how_to_go_on_although_it_is_quiet(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(*_: Any, **__: Any) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("torchzoo.commands.study.new_run", lambda *_: None)
    monkeypatch.setattr("torchzoo.commands.run.follow", interrupted)
    assert cli.main(["study", "paper_breakdown", "alexnet", "-q", "-o", str(tmp_path)]) == 130
    path = tmp_path / "paper_breakdown"
    assert f"the rest of it: torchzoo study paper_breakdown --resume {path}\n" in capsys.readouterr().err


def test_runs_of_two_machines_are_for_the_study_of_devices_alone(tmp_path: Path) -> None:
    here = manifest().environment
    other = {**here, "cpu": "another CPU"}
    assert machine_kind(here) != machine_kind(other)
    paths = [keep(tmp_path / "a", [example()]), keep(tmp_path / "b", [example()], environment=other)]
    assert len(study.read_runs(study.load("paper_devices"), paths)) == 2
    with pytest.raises(StoreError, match="can't stand in one report"):
        study.read_runs(study.load("paper_breakdown"), paths)


def test_a_trial_is_called_one(tmp_path: Path) -> None:
    text = study.document(study.load("paper_devices"), [run_of([example(model="resnet18", device="cuda")])])
    assert "a part of the study, or a trial: 0 of the plan's 336 cases are in the run, and 1 cases" in text
    plan = study.planned(study.load("nanogpt").plan(Choice(folder=tmp_path)))
    whole = run_of([msgspec.structs.replace(example(Skipped(reason="no")), case=one.case) for one in plan])
    assert "a trial" not in study.document(study.load("nanogpt"), [whole])


def test_a_run_that_was_cut_short_is_a_part(tmp_path: Path) -> None:
    plan = study.planned(study.load("nanogpt").plan(Choice(folder=tmp_path)))
    whole = run_of([msgspec.structs.replace(example(Skipped(reason="no")), case=one.case) for one in plan])
    text = study.document(study.load("nanogpt"), [msgspec.structs.replace(whole, records=whole.records[:2])])
    assert f"a trial: 2 of the plan's {len(plan)} cases are in the run, and 0 cases" in text


SPEEDUP = "Speedup of inductor over eager"


def at(*precisions: Precision, model: str = "resnet18", **axes: Any) -> list[Record]:
    """A model in training with inductor at each of these precisions."""
    axes = {"mode": Mode.TRAIN, "device": "cuda", "backend": INDUCTOR, "batch_size": 16} | axes
    return [example(compared(), model=model, precision=one, **axes) for one in precisions]


def test_other_precisions_and_batches_than_the_plans_are_left_out() -> None:
    more = example(compared(), model="resnet18", mode=Mode.TRAIN, device="cuda", backend=INDUCTOR, batch_size=3)
    run = run_of([*at(Precision.DEFAULT, Precision.AMP), more, *at(Precision.DEFAULT, model="vgg16", batch_size=3)])
    own = study.own_cases(study.load("paper_compilers"))
    batch = next(case.batch_size for case in own if (case.model, case.mode) == ("resnet18", Mode.TRAIN))
    found, lines = study.beside_the_plan(own, run)
    assert [(record.case.model, record.case.batch_size) for record in found.records] == [
        ("resnet18", batch),
        ("vgg16", 3),
    ]
    assert "The run has 1 more cases at other precisions, which are left out here." in lines
    assert "The run has 1 more cases at other batches, which are left out here." in lines


@pytest.mark.parametrize(
    ("records", "names"),
    [
        (at(Precision.FP32, Precision.AMP), ["train, fp32", "train, amp"]),
        (
            [*at(Precision.DEFAULT, batch_size=1), *at(Precision.DEFAULT, batch_size=3)],
            ["train, batch 1", "train, batch 3"],
        ),
        ([*at(Precision.DEFAULT), *at(Precision.DEFAULT, device="cpu")], ["train, cuda", "train, cpu"]),
        ([*at(Precision.AMP), *at(Precision.AMP, model="vgg16", batch_size=3)], ["train"]),
    ],
)
def test_no_mean_of_a_trial_mixes_kinds_of_cases(records: list[Record], names: list[str]) -> None:
    text = study.document(study.load("paper_compilers"), [run_of(records)])
    rows = beside(text, SPEEDUP)
    counts = {name: cells[1].partition("; ")[2] for name, cells in rows.items() if cells[1].startswith("2.00 times")}
    each = len(records) // len(names)
    assert counts == dict.fromkeys(names, f"{each} of {each} counted")
    assert all(rows[name][0] == "1.3 times" for name in names)
    assert ("no mean mixes them" in text) == (len(names) > 1)


def test_models_that_the_plan_does_not_have_are_in_no_figure() -> None:
    quick, slow = (measured(blocks=(Block("eager", (time_s,)),) * 9) for time_s in (0.1, 0.4))
    one, other = (
        run_of([example(slow, model="resnet18"), example(outcome, model="not_of_the_paper")], Path(f"/{name}"))
        for name, outcome in (("one", slow), ("other", quick))
    )
    text = study.document(study.load("paper_devices"), [one, other])
    assert "The run has 1 more models, which are left out here." in text
    assert beside(text, study_table())["eager, eval, all"][1].startswith("1.00 times")
    trial = study.document(study.load("paper_devices"), [run_of([example(model="tiny")])])
    assert "left out" not in trial
    assert "1 cases: 1 measured" in trial


def test_a_study_of_eager_takes_eagers_half_of_cases_with_a_backend() -> None:
    alone = example(measured(blocks=(Block("eager", (0.4,)),) * 9), model="dcgan", device="cuda")
    crashed = Failed(kind=FailureKind.CRASHED, stage=Stage.COMPILE, message="gone")
    run = run_of(
        [
            example(compared(), model="resnet18", device="cuda", backend=INDUCTOR),
            example(compared(), model="dcgan", device="cuda", backend=INDUCTOR),
            alone,
            example(crashed, model="vgg16", device="cuda", backend=INDUCTOR),
            example(Skipped(reason="it is quantized"), model="alexnet", device="cuda", backend=INDUCTOR),
        ]
    )
    found, lines = study.beside_the_plan(study.own_cases(study.load("paper_devices")), run)
    assert {record.case.backend for record in found.records} == {EAGER}
    outcomes = {record.case.model: record.outcome for record in found.records}
    samples_s = {name: one.blocks[0].samples_s for name, one in outcomes.items() if isinstance(one, Measured)}
    assert samples_s == {"resnet18": (0.2,), "dcgan": (0.4,)}
    assert all(list(one.variants) == ["eager"] for one in outcomes.values() if isinstance(one, Measured))
    assert outcomes["vgg16"] == Skipped(reason="with the backend inductor, FAILED (crashed in compile): gone")
    assert outcomes["alexnet"] == Skipped(reason="with the backend inductor, skipped: it is quantized")
    assert "Eager of 1 of these cases was measured beside a backend" in lines[0]
    assert {case.model for case in found.manifest.cases} == {"resnet18", "dcgan", "vgg16", "alexnet"}
    kept, lines = study.beside_the_plan(study.own_cases(study.load("paper_compilers")), run)
    assert len(kept.records) == len(run.records)
    assert not any("Eager of" in line for line in lines)


def test_halves_of_models_that_the_plan_does_not_have_are_not_counted() -> None:
    models = ("resnet18", "not_of_the_paper")
    run = run_of([example(compared(), model=name, device="cuda", backend=INDUCTOR) for name in models])
    found, lines = study.beside_the_plan(study.own_cases(study.load("paper_devices")), run)
    assert [record.case.model for record in found.records] == ["resnet18"]
    assert any(line.startswith("Eager of 1 of these cases") for line in lines)


def test_unlike_software_on_the_same_hardware_makes_no_second_machine(tmp_path: Path) -> None:
    here = manifest().environment
    paths = [
        keep(tmp_path / name, [example()], environment={**here, "packages": {"timm": version}})
        for name, version in (("a", "1.0"), ("b", "1.1"))
    ]
    with pytest.raises(StoreError, match=r"would count as two machines.*timm is 1\.0 and 1\.1"):
        study.read_runs(study.load("paper_devices"), paths)


def test_a_figure_that_is_missing_has_no_markup_of_its_own() -> None:
    text = study.document(study.load("paper_devices"), [run_of([example(model="resnet18")])])
    assert "\\`" not in text
    assert "(--from RUN RUN)" in beside(text, study_table())["all"][1]


@pytest.mark.parametrize("name", ["nanogpt", "resnets", "paper_compilers"])
def test_the_document_says_what_the_interval_of_a_mean_is_over(name: str) -> None:
    assert "what is\naveraged: models, or the steps of one model" in study.document(
        study.load(name), [run_of([example()])]
    )


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
    assert lines[0] == "resnet18 train cpu zero_grad:kernels bs2"
    assert "6 cases to run; 8 s of timing a case at most; passes: none" in lines
    assert any(line.startswith("not run (1 cases): offload") for line in lines)
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
    run = keep(tmp_path / "run", [example(model="resnet18")])
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


def study_table() -> str:
    return next(iter(study.load("paper_devices").published.tables))
