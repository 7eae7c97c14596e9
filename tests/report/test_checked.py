"""What is shown of a run with `--check-only`: verdicts, and no figure."""

from __future__ import annotations

import csv
import io
from pathlib import Path

import msgspec
import pytest
from syrupy.assertion import SnapshotAssertion

from examples import INDUCTOR, record, run_of
from in_this_process import torchzoo
from kept_runs import against_eager, checked, failed, incorrect, keep
from torchzoo.analysis.cases import Status, read_report_data
from torchzoo.analysis.compare import Change, compare_runs
from torchzoo.analysis.time_use import time_use
from torchzoo.cli import main
from torchzoo.commands.run import has_failures
from torchzoo.files import to_json
from torchzoo.record import Checked, CheckStatus, DecodeError, Record, Skipped, decode_record
from torchzoo.report import exports
from torchzoo.report.exports import hud_v3
from torchzoo.report.summary import counts, run_counts
from torchzoo.settings import Pass, Settings
from torchzoo.store import StoreError, read_run
from user_models import make_folder

ONLY = Settings(passes=(Pass.CHECK_ONLY,))


RECORDS = [
    record(checked(CheckStatus.CORRECT), backend=INDUCTOR, model="right"),
    record(checked(CheckStatus.INCORRECT, "loss is off by 40%"), backend=INDUCTOR, model="wrong"),
    record(checked(CheckStatus.NONDETERMINISTIC, "eager differs"), backend=INDUCTOR, model="dice"),
    record(Skipped(reason="no way"), backend=INDUCTOR, model="skips"),
    record(failed("no memory"), backend=INDUCTOR, model="fails"),
]


def kept(path: Path, records: list[Record] = RECORDS) -> Path:
    return keep(path, records, settings=ONLY)


def test_each_case_has_its_verdict_and_no_mean_has_it(tmp_path: Path) -> None:
    path = kept(tmp_path / "run")
    cases = {result.case.model: result for result in read_report_data([path]).cases}
    assert {model: result.status for model, result in cases.items()} == {
        "right": Status.CHECKED,
        "wrong": Status.INCORRECT,
        "dice": Status.CHECKED,
        "skips": Status.SKIPPED,
        "fails": Status.FAILED,
    }
    assert not any(result.passed for result in cases.values())
    run = read_run(path)
    found = run_counts(run).found
    assert (found.measured, found.checked, found.incorrect, found.passed, found.could_run) == (0, 3, 1, 2, 4)
    assert (found.comparable, found.passing, found.over_all) == (0, None, None)
    assert counts(run) == (
        "5 cases: 3 checked (1 of them incorrect), 1 skipped with a reason, 1 failed; "
        "50% of those that could run passed"
    )
    assert has_failures(run)


@pytest.mark.parametrize("form", ["table", "md"])
def test_documents_have_verdicts_for_figures(
    form: str, tmp_path: Path, snapshot: SnapshotAssertion, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "80")
    assert torchzoo("report", kept(Path("run")), "--format", form).stdout == snapshot
    assert "loss is off by 40%" in torchzoo("show", "run", "wrong").stdout


def test_exports_have_accuracy_alone() -> None:
    run = run_of(RECORDS, settings=ONLY)
    ((name, text),) = exports.dynamo_csv(run).items()
    assert name.endswith("_accuracy.csv")
    assert {row["name"]: row["accuracy"] for row in csv.DictReader(io.StringIO(text))} == {
        "right": "pass",
        "wrong": "fail_accuracy",
        "dice": "eager_two_runs_differ",
        "fails": "OOM",
    }
    assert hud_v3(run).count('"accuracy"') == 4
    assert "latency" not in hud_v3(run)


def test_a_comparison_finds_what_is_newly_wrong() -> None:
    fine = [record(checked(CheckStatus.CORRECT), backend=INDUCTOR, model=model) for model in ("right", "wrong", "dice")]
    comparison = compare_runs(run_of(fine), run_of(RECORDS[:3]))
    assert {one.case.model: one.change for one in comparison.changes} == {"wrong": Change.NEWLY_FAILING}
    assert comparison.changes[0].base == "checked"
    timed = [record(against_eager(2.0), backend=INDUCTOR, model=model) for model in ("right", "wrong", "dice")]
    assert [one.case.model for one in compare_runs(run_of(timed), run_of(RECORDS[:3])).changes] == ["wrong"]


@pytest.mark.parametrize("form", ["table", "md"])
def test_it_has_no_noise(form: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["report", str(kept(tmp_path / "run")), "--noise", "--format", form]) == 0
    shown = capsys.readouterr().out
    assert "no case of this run was timed, so that nothing is known of noise" in shown
    assert "Between processes" not in shown


def test_it_does_not_stand_in_one_report_with_figures(tmp_path: Path) -> None:
    timed = keep(tmp_path / "timed", [record(incorrect(2.0), backend=INDUCTOR, model="wrong")])
    with pytest.raises(StoreError, match="timing is yes and no"):
        read_report_data([timed, kept(tmp_path / "run")])


def test_its_time_has_no_windows() -> None:
    used = time_use([record_on_lane(one) for one in RECORDS[:2]])
    assert used is not None
    assert (dict(used.windows_s), dict(used.cpu_s)) == ({}, {"check": 6.0})


def test_pauses_of_a_run_that_was_resumed_are_not_its_time() -> None:
    spans = [("10:00:00", "10:00:20"), ("10:00:05", "10:00:30"), ("10:00:40", "10:01:00"), ("11:30:00", "11:30:10")]
    records = [
        msgspec.structs.replace(
            record_on_lane(one), started_at=f"2026-11-26T{began}", finished_at=f"2026-11-26T{ended}"
        )
        for one, (began, ended) in zip(RECORDS, spans, strict=False)
    ]
    used = time_use(records)
    assert used is not None
    assert len(records) == 4
    assert used.wall_s == 70.0


def record_on_lane(one: Record) -> Record:
    return msgspec.structs.replace(one, lane="cpu")


def test_a_record_without_a_batch_is_refused() -> None:
    with pytest.raises(DecodeError, match="checked without a batch size"):
        decode_record(to_json(record(checked(CheckStatus.CORRECT), batch_size=None)))


@pytest.mark.slow
def test_the_command_times_nothing(tmp_path: Path) -> None:
    make_folder(tmp_path / "zoo", "tiny")
    words = ["tiny", "--models-dir", str(tmp_path / "zoo"), "-t", "train,eval", "-d", "cpu", "--backend", "aot_eager"]
    done = torchzoo("run", *words, "--check-only", "-o", str(tmp_path / "run"))
    assert done.returncode == 0, done.stderr
    assert "2 cases: 2 checked, 0 skipped with a reason, 0 failed; 100%" in " ".join(done.stdout.split())
    records = read_run(tmp_path / "run").records
    assert [type(one.outcome) for one in records] == [Checked, Checked]
    assert all(isinstance(one.outcome, Checked) and one.outcome.graphs for one in records)
    refused = torchzoo("run", *words, "--check-only", "--energy", "--trace", str(tmp_path / "traces"))
    assert refused.returncode == 2
    assert (
        "--check-only times nothing: leave it out, or what comes after the timing (--breakdown, --energy)"
        in refused.stderr
    )
