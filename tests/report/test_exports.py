"""Runs for other programs: the files of PyTorch's dynamo benchmarks, and the command."""

from __future__ import annotations

import csv
import io
from pathlib import Path

import pytest

from examples import INDUCTOR, compiled, record, run_of
from in_this_process import torchzoo
from kept_runs import keep
from torchzoo.case import Backend, Mode, Precision
from torchzoo.record import Check, CheckStatus, Failed, FailureKind, Skipped
from torchzoo.report import exports
from torchzoo.settings import Stage

FAILED = Failed(kind=FailureKind.OOM_DEVICE, stage=Stage.WARM_UP, message="out")


def table(text: str) -> list[dict[str, str]]:
    return list(csv.DictReader(io.StringIO(text)))


# --- CSV ---


def test_a_failure_is_marked_as_the_readers_know_it_and_a_skip_has_no_line() -> None:
    found = [record(FAILED, backend=INDUCTOR, model="bad"), record(Skipped(reason="no"), backend=INDUCTOR, model="no")]
    [text] = exports.dynamo_csv(run_of(found)).values()
    [row] = table(text)
    assert (row["name"], float(row["speedup"]), float(row["abs_latency"])) == ("bad", 0.0, 0.0)
    assert {row[name] for name in exports.PERFORMANCE[5:]} == {""}


def test_axes_are_files_and_a_model_stands_once_in_each() -> None:
    found = [
        record(compiled(), backend=INDUCTOR),
        record(compiled(), backend=INDUCTOR, batch_size=64),
        record(compiled(), backend=INDUCTOR, mode=Mode.TRAIN),
        record(compiled(), backend=Backend("inductor", "reduce-overhead"), precision=Precision.AMP),
        record(),
    ]
    files = exports.dynamo_csv(run_of(found))
    assert sorted(files) == [
        "inductor-reduce-overhead_torchzoo_amp_inference_cpu_performance.csv",
        "inductor_torchzoo_float32_inference_cpu_bs64_performance.csv",
        "inductor_torchzoo_float32_inference_cpu_performance.csv",
        "inductor_torchzoo_float32_training_cpu_performance.csv",
    ]
    assert all(len(table(text)) == 1 for text in files.values())


def test_checks_become_an_accuracy_file() -> None:
    statuses = {status: compiled(check=Check(status=status)) for status in CheckStatus}
    found = [record(outcome, backend=INDUCTOR, model=status) for status, outcome in statuses.items()]
    found.append(record(FAILED, backend=INDUCTOR, model="failed"))
    files = exports.dynamo_csv(run_of(found))
    rows = table(files["inductor_torchzoo_float32_inference_cpu_accuracy.csv"])
    assert {row["name"]: row["accuracy"] for row in rows} == {
        "correct": "pass",
        "partly_correct": "",
        "incorrect": "fail_accuracy",
        "nondeterministic": "eager_two_runs_differ",
        "reference_failed": "",
        "not_reached": "",
        "failed": "OOM",
    }


# --- the command ---


def test_command(tmp_path: Path) -> None:
    one = keep(tmp_path / "one", [record(compiled(), backend=INDUCTOR)])
    done = torchzoo("export", one, "--format", "dynamo-csv")
    assert (done.returncode, done.stdout[:8]) == (0, "dev,name")
    assert torchzoo("export", one, "--format", "hud-v3", "-o", tmp_path / "out.json").returncode == 0
    assert len((tmp_path / "out.json").read_text().splitlines()) == 12
    two = keep(tmp_path / "two", [record(compiled(), backend=INDUCTOR, mode=mode) for mode in (Mode.TRAIN, Mode.EVAL)])
    refused = torchzoo("export", two, "--format", "dynamo-csv")
    assert (refused.returncode, "-o" in refused.stderr) == (2, True)
    assert torchzoo("export", two, "--format", "dynamo-csv", "-o", tmp_path / "csv").returncode == 0
    assert len(list((tmp_path / "csv").iterdir())) == 2


@pytest.mark.parametrize(
    ("outcome", "options", "words"),
    [
        (None, ["dynamo-csv"], "no case of a backend beside eager"),
        (FAILED, ["hud-v3"], "no measured case"),
        (None, ["hud-v3", "-o", "no/x"], "can't write"),
        (None, ["op-shapes"], "--op-shapes"),
    ],
)
def test_nothing_to_export_is_one_line(
    outcome: Failed | None, options: list[str], words: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    refused = torchzoo("export", keep(tmp_path / "run", [record(outcome)]), "--format", *options)
    assert refused.returncode == 2
    (line,) = refused.stderr.splitlines()
    assert words in line
