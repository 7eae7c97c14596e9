"""Studies: their plans name the right cases, and the command does as it says."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from benchmark_runs import NAMES, STUDIES, beside
from study_records import of_plan, study_table
from syrupy.assertion import SnapshotAssertion

from in_this_process import torchzoo
from kept_runs import keep
from torchzoo.run.resources import part_of
from torchzoo.settings import Settings
from torchzoo.studies import study
from torchzoo.studies.userbenchmark import Choice
from torchzoo.zoo.suites import read_suite

# --- plans ---


def few(values: set[str]) -> str:
    """The values, unless a skip that a version of torch or a library decides may change them."""
    return ", ".join(sorted(values)) if len(values) < 6 else "many"


@pytest.mark.parametrize("name", STUDIES)
def test_plan(name: str, tmp_path: Path, snapshot: SnapshotAssertion) -> None:
    """The values of each axis over the cases that can run on a GPU, and the settings that are not the default."""
    request = study.load(name).plan(Choice(folder=tmp_path))
    cases = [one.case for one in study.planned(request) if one.resolved is None]
    lines = [f"jobs: {request.jobs}"]
    for axis in ("model", "mode", "device", "precision", "batch_size"):
        lines += [f"{axis}: {few({str(getattr(one, axis)) for one in cases})}"]
    for backend in sorted({one.backend for one in cases}, key=str):
        lines += [f"{backend}: {few({f'{one.model} {one.mode}' for one in cases if one.backend == backend})}"]
    changed = {field: getattr(request.settings, field) for field in Settings.__struct_fields__}
    lines += [f"{field}: {value}" for field, value in changed.items() if value != getattr(Settings(), field)]
    assert "\n".join([*lines, ""]) == snapshot


@pytest.mark.parametrize("name", ["paper_breakdown", "paper_compilers", "paper_devices", "paper_optimizations"])
def test_the_papers_studies_are_about_its_84_models(name: str, tmp_path: Path) -> None:
    planned = study.planned(study.load(name).plan(Choice(folder=tmp_path)))
    assert {one.case.model for one in planned} == {*read_suite("torchbench").models}


def test_parts_of_the_optimizations_have_each_model_once_with_all_that_its_figure_needs(tmp_path: Path) -> None:
    request = study.load("paper_optimizations").plan(Choice(folder=tmp_path))
    parts = [[one.case for one in study.planned(part_of(request, number, 4))] for number in (1, 2, 3, 4)]
    whole = {one.case for one in study.planned(request)}
    assert sorted(map(len, parts)) == [len(whole) // 4] * 4
    assert {case for cases in parts for case in cases} == whole
    models = [{case.model for case in cases} for cases in parts]
    assert sum(map(len, models)) == len(read_suite("torchbench").models)  # both ways to zero gradients are of one part


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
from torchzoo.studies import study, userbenchmark
from torchzoo.studies.userbenchmark import Choice
for load, names in ((study.load, {STUDIES}), (userbenchmark.load, {NAMES})):
    for name in names:
        assert study.planned(load(name).plan(Choice(folder=Path({str(tmp_path)!r}) / name))), name
assert 'torch' not in sys.modules
"""
    done = subprocess.run([sys.executable, "-c", code], check=False, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


# --- the command ---


def test_a_dry_run_shows_the_cases_and_measures_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    words = ["study", "paper_optimizations", "resnet18", "-t", "train", "-d", "cpu", "--bs", "smoke", "--dry-run"]
    lines = torchzoo(*words).stdout.splitlines()
    assert lines[0] == "resnet18 train cpu paper_optimizations/zero_grad:kernels bs2"
    assert "6 cases to run; 8 s of timing a case at most; passes: none" in lines
    assert any(line.startswith("not run (1 case): paper_optimizations/offload: ") for line in lines)
    assert torchzoo(*words, "--backend", "paper_optimizations/zero_grad:kernels").stdout.splitlines()[0] == lines[0]
    assert list(tmp_path.iterdir()) == []


def test_parts_have_each_model_once() -> None:
    shown = []
    for number in (1, 2, 3):
        words = ["--suite", "study_modes,study_cnn,study_llm", "-t", "eval", "-d", "cpu", "--part", f"{number}/3"]
        lines = torchzoo("study", "paper_breakdown", *words, "--dry-run").stdout.splitlines()
        shown.append([line.split()[0] for line in lines if " eval " in line])
    assert [len(one) for one in shown] == [2, 2, 2]
    assert len({name for one in shown for name in one}) == 6


def test_a_document_is_made_from_kept_runs_with_reasons_that_have_evidence(tmp_path: Path) -> None:
    run = keep(tmp_path / "run", [of_plan("paper_devices")])
    reasons = run / study.REASONS
    written = ["study", "paper_devices", "--from", str(run), "-o", str(tmp_path / "out")]
    reasons.write_text(f"- {{table: '{study_table()}', figure: all, reason: none, evidence: ''}}")
    assert torchzoo(*written).returncode == 2
    reasons.write_text(f"- {{table: '{study_table()}', figure: all, reason: one run alone, evidence: this run}}")
    assert torchzoo(*written).returncode == 0
    text = (tmp_path / "out" / "paper_devices.md").read_text()
    assert beside(text, study_table())["all"][1].startswith("not measured: it needs two runs")
    assert f"torchzoo study paper_devices --from {run}" in text
    assert "- machine: a CPU, 2 cores" in text
    assert "- date: 2026-11-20" in text
