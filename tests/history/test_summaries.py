"""Summaries of runs: they say what the folders say, and only what changed is read again."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from examples import record
from kept_nights import eager_s, night, nights, timed_night
from kept_runs import failed
from torchzoo.analysis.cases import Status
from torchzoo.analysis.run_figures import Metric
from torchzoo.history import summaries
from torchzoo.history.summaries import CACHE, History, HistoryError, read_history
from torchzoo.settings import Settings
from torchzoo.store import RunStore


@pytest.fixture(scope="module")
def year(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return nights(tmp_path_factory.mktemp("nights"), count=4, step_at=2)


@pytest.fixture
def runs(year: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(year, tmp_path / "runs"))


@pytest.fixture
def reads(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The names of the folders that are read."""
    found: list[str] = []
    read_run = summaries.read_run
    monkeypatch.setattr(summaries, "read_run", lambda path: (found.append(path.name), read_run(path))[1])
    return found


def everything(history: History) -> list[object]:
    return [
        (one.case, one.machine, one.metric, one.basis, point.run.path, point.status, point.figure)
        for one in history.series()
        for point in one.points
    ]


def test_series_say_what_the_folders_say(runs: Path) -> None:
    history = read_history([runs])
    (one,) = history.series({"model": ["slower"]}, [Metric.LATENCY])
    assert one.machine == "a CPU, 2 cores"
    assert one.values == pytest.approx([0.02, 0.02 * 1.004, 0.022 * 0.997, 0.022 * 1.001])
    assert [point.run.torch for point in one.points] == ["2.14.0", "2.14.0", "2.15.0", "2.15.0"]
    assert [(c.name, c.before, c.after) for c in one.software_changes()[2]] == [("torch", "2.14.0", "2.15.0")]
    figure = one.points[0].figure
    assert figure is not None
    assert figure.low < figure.value < figure.high
    metrics = {(s.case.model, str(s.case.backend), s.metric) for s in history.series()}
    assert ("same", "inductor", Metric.COMPILE_TIME) in metrics
    assert ("same", "inductor", Metric.DEVICE_MEMORY) in metrics
    assert ("slower", "eager", Metric.HOST_MEMORY) in metrics


def test_only_what_changed_is_read_again(runs: Path, reads: list[str]) -> None:
    before = everything(read_history([runs]))
    assert len(reads) == 4
    assert everything(read_history([runs])) == before
    assert len(reads) == 4
    with RunStore(runs / "night_01", resume=True) as store:
        store.append(record(failed("out of luck"), model="same"))
    history = read_history([runs])
    assert reads[4:] == ["night_01"]
    (one,) = history.series({"model": ["same"], "backend": ["eager"]}, [Metric.LATENCY])
    assert [point.status for point in one.points] == [Status.PASSED, Status.FAILED, Status.PASSED, Status.PASSED]
    assert "out of luck" in one.points[1].reason
    assert one.points[1].figure is None
    night(runs, 9, [record(eager_s(0.01), model="other")])
    shutil.rmtree(runs / "night_00")
    history = read_history([runs])
    assert reads[5:] == ["night_09"]
    assert [len(one.points) for one in history.series({"model": ["slower"]}, [Metric.LATENCY])] == [3]
    assert len(list((runs / CACHE).iterdir())) == 4


def test_summaries_of_another_schema_are_made_again(
    runs: Path, reads: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    before = everything(read_history([runs]))
    monkeypatch.setattr(summaries, "SCHEMA", summaries.SCHEMA + 1)
    assert everything(read_history([runs])) == before
    assert len(reads) == 8


def test_runs_are_read_where_no_summary_can_be_kept(runs: Path) -> None:
    (runs / CACHE).write_text("in the way")
    assert len(read_history([runs]).runs) == 4


def test_unlike_machines_are_never_in_one_series(runs: Path) -> None:
    night(runs, 9, [record(eager_s(0.5), model="slower", mode="train")], cpu="another CPU")
    found = read_history([runs]).series({"model": ["slower"]}, [Metric.LATENCY])
    assert {one.machine: len(one.points) for one in found} == {"a CPU, 2 cores": 4, "another CPU, 2 cores": 1}


def test_a_damaged_run_is_one_line_and_costs_no_other(runs: Path) -> None:
    (runs / "night_00" / "run.json").write_text("{")
    with (runs / "night_01" / "records.jsonl").open("a") as file:
        file.write('{"case": \n')
    (runs / "night_02" / "records.jsonl").unlink()
    (runs / "night_02" / "records.jsonl").mkdir()
    history = read_history([runs])
    assert {Path(name).name for name in history.problems} == {"night_00", "night_01", "night_02"}
    assert all("\n" not in text for text in history.problems.values())
    assert len(history.runs) == 2  # the night with one bad line, and the whole one
    assert read_history([runs]).problems == history.problems  # and it is said again


def test_a_deeper_folder_is_found_and_a_hidden_one_is_not(tmp_path: Path) -> None:
    night(tmp_path / "runs" / "2026" / "june", 1, [record(eager_s(0.01))])
    night(tmp_path / "runs" / ".trash", 2, [record(eager_s(0.01))])
    assert len(read_history([tmp_path / "runs"]).runs) == 1


def test_a_folder_that_is_not_there_is_refused(tmp_path: Path) -> None:
    with pytest.raises(HistoryError, match="name the folder that holds your runs"):
        read_history([tmp_path / "nowhere"])


@pytest.mark.parametrize("file", ["ab.json", "bisect.json"])
def test_runs_of_an_experiment_count_only_where_it_is_named(tmp_path: Path, file: str) -> None:
    experiment = tmp_path / "runs" / "2026" / "confirm"
    night(experiment / "base", 1, [record(eager_s(0.01))])
    (experiment / file).write_text("{}")
    night(tmp_path / "runs" / "2026" / "run", 2, [record(eager_s(0.01))])
    assert len(read_history([tmp_path / "runs"]).runs) == 1
    assert len(read_history([experiment]).runs) == 1


def test_the_speed_of_a_run_comes_from_its_records(tmp_path: Path) -> None:
    timed_night(tmp_path, 0, wall_s=20.0, cpu_s=5.0)
    (series,) = read_history([tmp_path]).speeds()
    assert series.values("cases_per_minute") == [pytest.approx(6.0)]
    assert series.values("window_share") == [pytest.approx(0.2)]
    assert series.values("cpu_s_per_case") == [pytest.approx(5.0)]
    assert (series.conditions.cases, series.conditions.lanes, series.conditions.cores) == (2, 1, 2)


def test_only_speeds_under_the_same_conditions_are_in_one_series(tmp_path: Path) -> None:
    for number in range(3):
        timed_night(tmp_path, number, wall_s=20.0)
    timed_night(tmp_path, 3, wall_s=20.0, settings=Settings(jobs=4))
    timed_night(tmp_path, 4, wall_s=20.0, cpu="another CPU")
    night(tmp_path, 5, [record(eager_s(0.01), model="one")])  # never on a lane
    speeds = read_history([tmp_path]).speeds()
    assert [[run.name for run in one.runs] for one in speeds] == [
        ["night_00", "night_01", "night_02"],
        ["night_03"],
        ["night_04"],
    ]


def test_a_run_that_lacks_cases_has_no_speed(tmp_path: Path) -> None:
    path = timed_night(tmp_path, 0, wall_s=20.0)
    first, _ = (path / "records.jsonl").read_bytes().splitlines(keepends=True)
    (path / "records.jsonl").write_bytes(first)
    assert read_history([tmp_path]).speeds() == []
