"""`torchzoo.load`: a run as a frame; and the commands that measure a case again."""

from __future__ import annotations

import io
import shlex
import subprocess
import sys
from pathlib import Path

import msgspec
import pandas as pd
import pytest

import torchzoo
from examples import CASE, INDUCTOR, manifest, measured, record
from kept_runs import SCRIPT, against_eager, everything, failed, incorrect, keep
from torchzoo import cli
from torchzoo.analysis.command_lines import command
from torchzoo.analysis.frame import FIGURES
from torchzoo.case import Backend, Case, CompileScope, MemoryFormat, Mode, Precision
from torchzoo.commands.options import run_request
from torchzoo.record import Check, CheckStatus, Failed, FailureKind, Growth, Record, Skipped
from torchzoo.settings import CacheMode, Settings, Stage


def loaded(path: Path, *records: Record) -> pd.DataFrame:
    return torchzoo.load(keep(path / "run", records))


def test_load_does_not_import_torch_and_torchzoo_does_not_import_pandas(tmp_path: Path) -> None:
    path = keep(tmp_path / "run", [record()])
    code = f"""
import sys, torchzoo
assert "pandas" not in sys.modules
frame = torchzoo.load({str(path)!r})
assert "pandas" in sys.modules and "torch" not in sys.modules
assert len(frame) == 1
"""
    done = subprocess.run([sys.executable, "-c", code], check=False, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def test_every_row_has_every_documented_column_whatever_its_outcome(tmp_path: Path) -> None:
    frame = torchzoo.load(everything(tmp_path / "run"))
    assert list(frame.columns) == [column.name for column in FIGURES]
    assert all(len(column.text) > 5 for column in FIGURES)
    assert len({column.name for column in FIGURES}) == len(FIGURES)
    assert {str(dtype) for dtype in frame.dtypes} <= {"string", "str", "Int64", "Float64", "boolean"}
    by_model = frame.set_index("model")
    assert by_model.loc["fails", "outcome"] == "failed"
    assert by_model.loc["fails", "failure_kind"] == "oom_device"
    assert pd.isna(by_model.loc["fails", "latency_s"])
    assert by_model.loc["skips", "reason"] == f"no {SCRIPT} way"
    assert by_model.loc["wrong", "check_status"] == "incorrect"
    assert pd.isna(by_model.loc["skips", "batch_size"]) or by_model.loc["skips", "batch_size"] == 4


def test_repeats_of_a_case_are_one_row_and_a_failed_one_is_the_cases(tmp_path: Path) -> None:
    three = [record(against_eager(speedup), backend=INDUCTOR, repeat=n) for n, speedup in enumerate((1.9, 2.0, 2.1))]
    frame = loaded(tmp_path, *three, record(model="b"), record(failed(), model="b", repeat=1))
    assert list(frame["model"]) == ["tiny", "b"]
    assert list(frame["repeats"]) == [3, 2]
    assert frame["speedup"][0] == pytest.approx(2.0, rel=0.01)
    assert frame["command"][0].endswith("--repeats 3")
    assert frame["outcome"][1] == "failed"
    assert "1 of 2 repeats" in frame["reason"][1]


def test_one_process_with_wrong_results_is_enough(tmp_path: Path) -> None:
    fine = against_eager(2.0, check=Check(status=CheckStatus.CORRECT))
    frame = loaded(
        tmp_path, *(record(one, backend=INDUCTOR, repeat=n) for n, one in enumerate((incorrect(2.0), fine, fine)))
    )
    assert (frame["check_status"][0], frame["check_reason"][0]) == ("incorrect", "loss is off by 40%")


def test_memory_that_grows_is_a_leak_and_too_few_steps_are_no_verdict(tmp_path: Path) -> None:
    outcomes = []
    for steps in (20, 3):
        outcome = measured()
        growing = Growth(device_bytes=None, host_bytes=tuple(10**6 * n for n in range(steps)))
        eager = msgspec.structs.replace(outcome.variants["eager"], growth=growing)
        outcomes.append(msgspec.structs.replace(outcome, variants={"eager": eager}))
    frame = loaded(tmp_path, record(outcomes[0]), record(outcomes[1], model="b"))
    assert frame["eager_leak"][0] == "leak"
    assert frame["eager_host_growth_bytes"][0] == pytest.approx(10**6)
    assert pd.isna(frame["eager_leak"][1])


def test_lines_that_cannot_be_read_are_named_in_a_warning(tmp_path: Path) -> None:
    path = keep(tmp_path / "run", [record(), record(model="b")])
    lines = (path / "records.jsonl").read_text().splitlines(keepends=True)
    (path / "records.jsonl").write_text("garbage\n" + lines[1])
    with pytest.warns(UserWarning, match="records.jsonl: line 1 could not be read and is left out"):
        assert list(torchzoo.load(path)["model"]) == ["b"]


def test_csv_is_the_frame(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = everything(tmp_path / "run")
    assert cli.main(["report", str(path), "--format", "csv"]) == 0
    read = pd.read_csv(io.StringIO(capsys.readouterr().out))
    frame = torchzoo.load(path)
    assert list(read.columns) == list(frame.columns)
    assert list(read["model"]) == list(frame["model"])
    assert read["speedup"].sum() == pytest.approx(frame["speedup"].sum())
    assert read["speedup"].isna().sum() == frame["speedup"].isna().sum() > 0


# --- commands ---

CASES = [
    CASE,
    msgspec.structs.replace(CASE, model="hf_Bert", mode=Mode.TRAIN, device="cuda:1", backend=INDUCTOR, batch_size=16),
    msgspec.structs.replace(CASE, backend=Backend("inductor", "reduce-overhead"), precision=Precision.AMP_BF16, seed=7),
    msgspec.structs.replace(CASE, memory_format=MemoryFormat.CHANNELS_LAST, compile_scope=CompileScope.STEP),
    msgspec.structs.replace(CASE, model=SCRIPT),
    msgspec.structs.replace(CASE, model="a b; rm -rf '$HOME'"),
    msgspec.structs.replace(CASE, model="-dash"),
]


@pytest.mark.parametrize("case", CASES, ids=Case.label)
def test_a_command_asks_the_command_line_for_the_same_case(case: Case) -> None:
    settings = Settings(time_limit_s=2.5, threads=3, cache=CacheMode.WARM)
    words = shlex.split(command(case, manifest(settings=settings, models_dirs=("/my zoo",)), repeats=2))
    assert words[:2] == ["python", "run.py"]
    parsed = cli.build_parser().parse_args(["run", *words[2:]])
    request = run_request(parsed)
    axes, settings = request.axes, request.settings
    assert request.patterns == (case.model,)
    assert axes.repeats == 2
    assert (axes.modes, axes.devices, axes.backends) == ((case.mode,), (case.device,), (case.backend,))
    assert (axes.precisions, axes.memory_formats) == ((case.precision,), (case.memory_format,))
    assert (axes.compile_scopes, axes.batch_sizes, axes.seed) == ((case.compile_scope,), (case.batch_size,), case.seed)
    assert (settings.time_limit_s, settings.threads, settings.cache) == (2.5, 3, CacheMode.WARM)
    assert request.models_dirs == ("/my zoo",)


def test_a_case_that_ran_into_a_time_limit_names_it_and_one_that_can_not_run_names_no_batch() -> None:
    hung = Failed(kind=FailureKind.TIMEOUT, stage=Stage.COMPILE, message="hung")
    assert "--compile-timeout 900" in command(CASE, manifest(), failed=record(hung))
    unknown = msgspec.structs.replace(CASE, batch_size=None)
    text = command(unknown, manifest(), failed=record(Skipped(reason="no")))
    assert "--bs" not in text
    assert "timeout" not in text
