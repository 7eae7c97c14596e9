"""`torchzoo history` as it is used: show, regressions, page, speed; and what is wrong is one clear line."""

from __future__ import annotations

import html
import json
import re
import subprocess
import sys
from pathlib import Path
from subprocess import CompletedProcess

import msgspec
import pytest
from syrupy.assertion import SnapshotAssertion

from examples import ROOT, record, variant_result
from in_this_process import refused, torchzoo
from kept_nights import NOISE, eager_s, night, nights, timed_night
from kept_runs import MESSAGE, SCRIPT, failed
from torchzoo.record import StepCounts


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Twenty nights. At the fifteenth torch changes, and the model `slower` becomes 10% slower and larger."""
    root = nights(tmp_path_factory.mktemp("nights"))
    night(root, 20, [record(failed("no longer"), model="same"), record(eager_s(0.022), model=SCRIPT)], torch="2.15.0")
    return root


def history(runs: Path, *words: str) -> CompletedProcess[str]:
    return torchzoo("history", *words, "--runs", runs)


SHOWN = {
    "one series": "show slower -t train -d cpu --backend eager --metric time",
    "several series": "show s*",
    "a case that fails": "show same --backend eager --metric latency --last 2",
    "regressions": "regressions --from 2.14.0 --to 2.15.0",
}


@pytest.mark.parametrize("name", SHOWN)
def test_what_is_shown(runs: Path, name: str, snapshot: SnapshotAssertion, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "120")
    done = history(runs, *SHOWN[name].split())
    assert done.returncode == (name == "regressions")
    assert done.stdout == snapshot


def test_json(runs: Path) -> None:
    (series,) = json.loads(history(runs, "show", "slower", "--metric", "latency", "--json").stdout)
    assert (series["case"]["model"], series["unit"], len(series["points"])) == ("slower", "s", 20)
    assert [(one["index"], one["p_value"] < 1e-4) for one in series["change_points"]] == [(14, True)]
    assert series["points"][14]["software_changes"] == [{"name": "torch", "before": "2.14.0", "after": "2.15.0"}]
    (machine,) = json.loads(history(runs, *SHOWN["regressions"].split(), "--json").stdout)["machines"]
    verdicts = {(one["case"]["model"], one["metric"]): one["verdict"] for one in machine["findings"]}
    assert (verdicts["slower", "latency"], verdicts["slower", "host_memory"]) == ("slower", "more")


def test_a_slower_suite_is_seen(tmp_path: Path, snapshot: SnapshotAssertion, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "120")
    for number in range(16):
        slower = 1.3 if number >= 8 else 1.0
        timed_night(tmp_path, number, wall_s=20 * slower * (1 + NOISE[number % len(NOISE)]))
    assert history(tmp_path, "speed", "--last", "10").stdout == snapshot
    (series,) = json.loads(history(tmp_path, "speed", "--json").stdout)
    found = {figure: [point["index"] for point in points] for figure, points in series["change_points"].items()}
    assert found == {"cases_per_minute": [8], "window_share": [8], "cpu_s_per_case": []}


def test_counts_of_a_step_are_numbers_without_a_unit(tmp_path: Path) -> None:
    for number, operators in enumerate((1236, 1300)):
        counted = variant_result(counts=StepCounts(operators=operators, python_calls=900))
        outcome = msgspec.structs.replace(eager_s(0.01), variants={"eager": counted})
        night(tmp_path, number, [record(outcome, model="m")])
    shown = history(tmp_path, "show", "m", "--metric", "operators").stdout
    assert "night_00  1,236\n" in shown
    compared = torchzoo("compare", tmp_path / "night_00", tmp_path / "night_01", "--metric", "operators").stdout
    assert re.search(r"1,236 +1,300", compared)


@pytest.mark.parametrize(
    ("base", "candidate"),
    [("night_02", "night_16"), ("2026-01-03", "2026-01-17"), ("2.14.0", "2026-01-20")],
)
def test_sides_can_be_runs_and_dates(runs: Path, base: str, candidate: str) -> None:
    done = history(runs, "regressions", "--from", base, "--to", candidate, "--metric", "host_memory")
    assert (done.returncode, "more" in done.stdout) == (1, True)


def test_two_sides_without_a_change_are_no_regression(runs: Path) -> None:
    done = history(runs, "regressions", "--from", "2026-01-03", "--to", "2026-01-05")
    assert (done.returncode, "slower train" in done.stdout) == (0, False)


def test_the_page_is_offline_and_foreign_text_is_inert(runs: Path, tmp_path: Path) -> None:
    night(tmp_path / "runs", 1, [record(failed(MESSAGE), model="m"), record(eager_s(0.1), model=SCRIPT)])
    file = tmp_path / "page.html"
    assert torchzoo("history", "page", "-o", file, "--runs", runs, "--runs", tmp_path / "runs").returncode == 0
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


def test_a_folder_that_cannot_be_read_is_one_line(tmp_path: Path) -> None:
    runs = tmp_path / "runs"
    night(runs, 1, [record(eager_s(0.01), model="m")])
    (night(runs, 2, [record()]) / "run.json").write_text("nothing")
    done = torchzoo("history", "show", "m", "--metric", "latency", "--runs", runs)
    assert done.returncode == 0
    assert "night_01" in done.stdout
    (line,) = done.stderr.splitlines()
    assert "night_02" in line


def test_only_the_runs_of_the_named_folder_are_shown(tmp_path: Path) -> None:
    for number, name in enumerate(("w1", "w2"), start=1):
        night(tmp_path / name, number, [record(eager_s(0.01), model="m")], torch=f"2.1{number}.0")
    shown = history(tmp_path / "w1", "show", "m", "--metric", "latency").stdout
    assert ("night_01" in shown, "night_02" in shown) == (True, False)
    line = refused("history", "regressions", "--from", "2.11.0", "--to", "2.12.0", "--runs", tmp_path / "w1")
    assert "versions of torch in the runs: 2.11.0;" in line
    both = ("--runs", tmp_path / "w1", "--runs", tmp_path / "w2")
    assert "night_02" in torchzoo("history", "show", "m", "--metric", "latency", *both).stdout


WRONG = {
    ("show", "slowr"): "did you mean slower",
    ("show", "slower", "-t", "trian"): "did you mean train",
    ("show", "slower", "--metric", "speed"): "unknown metric 'speed'",
    ("show", "slower", "-t", "eval"): "there are slower train cpu eager bs4",
    ("show", "slower", "--backend", "inductor"): "no case has these axes",
    ("show", "slower", "--machine", "H100"): "known: a CPU, 2 cores",
    ("regressions", "--from", "2.13.0", "--to", "2.15.0"): "versions of torch in the runs: 2.14.0, 2.15.0",
    ("regressions", "--from", "timm==9", "--to", "2.15.0"): "versions of timm in the runs: 1.0.19",
    ("regressions", "--from", "tim==9", "--to", "2.15.0"): "did you mean timm",
    ("regressions", "--from", "2025-12-24", "--to", "2.15.0"): "nearest days with runs are 2026-01-01",
    ("regressions", "--from", "2.15.0", "--to", "2.15.0"): "same runs",
    ("speed",): "no run here has measured its cases to the end",
}


@pytest.mark.parametrize("words", WRONG)
def test_what_is_not_there_is_one_line_that_says_what_there_is(runs: Path, words: tuple[str, ...]) -> None:
    assert WRONG[words] in refused("history", *words, "--runs", runs)


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
