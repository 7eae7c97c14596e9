"""`torchzoo history` as it is used: index, show, regressions, page; and what is wrong is one clear line."""

from __future__ import annotations

import html
import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from examples import ROOT, record
from kept_nights import eager_s, night, nights
from kept_runs import MESSAGE, SCRIPT, failed
from torchzoo import cli


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Twenty nights. At the fifteenth torch changes, and the model `slower` becomes 10% slower and larger."""
    root = nights(tmp_path_factory.mktemp("nights"))
    night(root, 20, [record(failed("no longer"), model="same"), record(eager_s(0.022), model=SCRIPT)], torch="2.15.0")
    return root


def history(runs: Path | None, *words: str) -> int:
    try:
        return cli.main(["history", *words, *([] if runs is None else ["--runs", str(runs)])])
    except SystemExit as refused:  # by argparse
        return int(str(refused.code))


def test_show_lists_one_series_with_its_change(
    runs: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("COLUMNS", "200")
    assert history(runs, "show", "slower", "-t", "train", "-d", "cpu", "--backend", "eager", "--metric", "time") == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "slower train cpu eager bs4, latency"
    assert lines[1] == "on a CPU, 2 cores"
    (change,) = [" ".join(line.split()) for line in lines if "CHANGE" in line]
    assert change.startswith("2026-01-15 02:00 night_14 21.890 ms [21.879, 21.901] CHANGE 1.100x [1.09")
    assert change.endswith("torch 2.14.0 -> 2.15.0")


def test_show_gives_a_line_for_each_of_several_series(runs: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert history(runs, "show", "s*") == 0
    out = capsys.readouterr().out
    assert "slower train cpu eager bs4, host memory" in out
    assert "same eval cpu inductor bs4, compile time" in out
    assert "on 2026-01-15" in out


def test_show_as_json_has_all_points_in_seconds(runs: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert history(runs, "show", "slower", "--metric", "latency", "--json") == 0
    (one,) = json.loads(capsys.readouterr().out)
    assert (one["case"]["model"], one["metric"], one["unit"]) == ("slower", "latency", "s")
    assert len(one["points"]) == 20
    assert one["points"][0]["figure"]["value"] == pytest.approx(0.02)
    assert [point["index"] for point in one["change_points"]] == [14]
    assert one["points"][14]["software_changes"] == [{"name": "torch", "before": "2.14.0", "after": "2.15.0"}]


def test_a_case_that_fails_is_shown_with_its_reason(runs: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert history(runs, "show", "same", "--backend", "eager", "--metric", "latency", "--last", "2") == 0
    out = " ".join(capsys.readouterr().out.split())
    assert "night_20 failed" in out
    assert "no longer" in out
    assert "the last 2 of 21 runs" in out


def test_regressions_between_two_versions(runs: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert history(runs, "regressions", "--from", "2.14.0", "--to", "2.15.0") == 1
    out = capsys.readouterr().out
    assert "from 2.14.0: 10 runs, 2026-01-05 to 2026-01-14" in out
    assert "to 2.15.0: 7 runs, 2026-01-15 to 2026-01-21" in out
    assert "software: torch 2.14.0 -> 2.15.0" in out
    assert re.search(r"slower train cpu eager bs4, latency +slower|slower train cpu eager bs4, latency\n +slower", out)
    assert re.search(r"same eval cpu eager bs4 +newly failing|same eval cpu eager bs4\n +newly failing", out)
    assert "no longer" in out


def test_regressions_as_json(runs: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert history(runs, "regressions", "--from", "2.14.0", "--to", "2.15.0", "--json") == 1
    (machine,) = json.loads(capsys.readouterr().out)["machines"]
    found: dict[Any, Any] = {
        (one["case"]["model"], one["case"]["backend"]["name"], one["metric"]): one for one in machine["findings"]
    }
    slower = found["slower", "eager", "latency"]
    assert slower["verdict"] == "slower"
    assert slower["ratio"]["low"] < 1.1 < slower["ratio"]["high"]
    assert found["slower", "eager", "host_memory"]["verdict"] == "more"
    assert found["same", "inductor", "latency"]["verdict"] in ("same", "inconclusive")


@pytest.mark.parametrize(
    ("base", "candidate"),
    [("night_02", "night_16"), ("2026-01-03", "2026-01-17"), ("2.14.0", "2026-01-20")],
)
def test_sides_can_be_runs_and_dates(runs: Path, base: str, candidate: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert history(runs, "regressions", "--from", base, "--to", candidate, "--metric", "host_memory") == 1
    assert "more" in capsys.readouterr().out


def test_two_sides_without_a_change_are_no_regression(runs: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert history(runs, "regressions", "--from", "2026-01-03", "--to", "2026-01-05") == 0
    assert "slower train" not in capsys.readouterr().out


def test_the_page_is_offline_and_foreign_text_is_inert(runs: Path, tmp_path: Path) -> None:
    night(tmp_path / "runs", 1, [record(failed(MESSAGE), model="m"), record(eager_s(0.1), model=SCRIPT)])
    file = tmp_path / "page.html"
    assert cli.main(["history", "page", "-o", str(file), "--runs", str(runs), "--runs", str(tmp_path / "runs")]) == 0
    text = file.read_text(encoding="utf-8")
    assert SCRIPT not in text
    assert "<img" not in text
    assert not re.findall(r'(?:src|href)="(?!#|data:,)', text)
    assert "default-src 'none'" in html.unescape(text)
    (data,) = re.findall(r'<script type="application/json" id="data">(.*?)</script>', text, re.DOTALL)
    series = {one["title"]: one for one in json.loads(data)["series"]}
    slower = series["slower train cpu eager bs4, latency"]
    assert [change["at"] for change in slower["changes"]] == [14]
    assert slower["changes"][0]["worse"]
    assert len(slower["v"]) == len(slower["x"]) == 20
    assert text.count('<svg class="spark"') == len(series)
    assert "no longer" in json.dumps(series["same eval cpu eager bs4, latency"]["not"])


def test_an_index_alone_answers_without_the_folders(runs: Path, tmp_path: Path) -> None:
    file = tmp_path / "i"
    assert cli.main(["history", "index", str(runs), "--index", str(file)]) == 0
    assert cli.main(["history", "show", "slower", "--index", str(file)]) == 0


def test_index_says_what_it_did(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    runs = tmp_path / "runs"
    night(runs, 1, [record()])
    (night(runs, 2, [record()]) / "run.json").write_text("nothing")
    assert cli.main(["history", "index", str(runs)]) == 0
    captured = capsys.readouterr()
    assert captured.out == f"{runs / 'history.sqlite'}: 2 runs, 2 of them read now\n"
    (line,) = captured.err.splitlines()
    assert "night_02" in line
    assert cli.main(["history", "index", str(runs), "--rebuild"]) == 0
    assert "2 of them read now" in capsys.readouterr().out


def test_only_the_runs_of_the_named_folder_are_shown(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """One index may know several folders."""
    for number, name in enumerate(("w1", "w2"), start=1):
        night(tmp_path / name, number, [record(eager_s(0.01), model="m")], torch=f"2.1{number}.0")
    assert cli.main(["history", "index", str(tmp_path / "w1"), str(tmp_path / "w2")]) == 0
    capsys.readouterr()
    assert history(tmp_path / "w1", "show", "m", "--metric", "latency") == 0
    out = capsys.readouterr().out
    assert "night_01" in out
    assert "night_02" not in out
    assert history(tmp_path / "w1", "regressions", "--from", "2.11.0", "--to", "2.12.0") == 2
    assert "versions of torch in the index: 2.11.0;" in capsys.readouterr().err
    file = str(tmp_path / "w1" / "history.sqlite")
    assert cli.main(["history", "show", "m", "--metric", "latency", "--index", file]) == 0
    assert "night_02" in capsys.readouterr().out


WRONG = {
    ("show", "slowr"): "did you mean slower",
    ("show", "slower", "-t", "trian"): "did you mean train",
    ("show", "slower", "--metric", "speed"): "unknown metric 'speed'",
    ("show", "slower", "-t", "eval"): "the index has slower train cpu eager bs4",
    ("show", "slower", "--backend", "inductor"): "no case has these axes",
    ("show", "slower", "--machine", "H100"): "known: a CPU, 2 cores",
    ("regressions", "--from", "2.13.0", "--to", "2.15.0"): "versions of torch in the index: 2.14.0, 2.15.0",
    ("regressions", "--from", "timm==9", "--to", "2.15.0"): "versions of timm in the index: 1.0.19",
    ("regressions", "--from", "tim==9", "--to", "2.15.0"): "did you mean timm",
    ("regressions", "--from", "2025-12-24", "--to", "2.15.0"): "nearest days with runs are 2026-01-01",
    ("regressions", "--from", "2.15.0", "--to", "2.15.0"): "same runs",
}


@pytest.mark.parametrize("words", WRONG)
def test_what_is_not_there_is_one_line_that_says_what_there_is(
    runs: Path, words: tuple[str, ...], capsys: pytest.CaptureFixture[str]
) -> None:
    assert history(runs, *words) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert WRONG[words] in line


@pytest.mark.parametrize(
    "words",
    [
        ("show", "m", "--p-value", "2"),
        ("show", "m", "--window", "3"),
        ("show", "m", "--last", "-1"),
        ("show", "m", "--least-magnitude", "x"),
        ("show",),
        ("regressions", "--from", "2.14.0"),
        ("page",),
        (),
    ],
)
def test_wrong_usage_ends_with_2(words: tuple[str, ...], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        cli.main(["history", *words])
    assert ended.value.code == 2
    assert "torchzoo history" in capsys.readouterr().err


def test_folders_without_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    assert cli.main(["history", "show", "m"]) == 2
    assert "--runs DIR" in capsys.readouterr().err
    (tmp_path / "runs").mkdir()
    assert cli.main(["history", "show", "m"]) == 2
    assert "no runs in runs" in capsys.readouterr().err
    assert cli.main(["history", "index", "nowhere"]) == 2
    assert "no folder nowhere" in capsys.readouterr().err
    assert cli.main(["history", "show", "m", "--index", "nowhere"]) == 2
    assert "history index DIR" in capsys.readouterr().err
    assert not (tmp_path / "nowhere").exists()
    (tmp_path / "a file").write_text("x" * 200)
    assert cli.main(["history", "index", "runs", "--index", "a file"]) == 2
    assert "no index of torchzoo" in capsys.readouterr().err


def test_it_answers_without_torch_and_the_scheduler(runs: Path) -> None:
    code = f"""
import sys
from torchzoo.cli import main
assert main(["history", "regressions", "--from", "2.14.0", "--to", "2.15.0", "--runs", {str(runs)!r}]) == 1
assert main(["history", "show", "slower", "--runs", {str(runs)!r}]) == 0
sys.exit(bool({{"torch", "torchzoo.run.scheduler", "pandas"}} & set(sys.modules)))
"""
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, check=False, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
