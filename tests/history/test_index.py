"""The index: it says what the folders say, reads only what changed, and stands damage and other writers."""

from __future__ import annotations

import multiprocessing
import os
import shutil
import sqlite3
import subprocess
import sys
from multiprocessing.queues import SimpleQueue
from multiprocessing.synchronize import Barrier
from pathlib import Path

import pytest

from examples import ROOT, record
from kept_nights import eager_s, night, nights
from kept_runs import failed, keep
from torchzoo.analysis.cases import Status
from torchzoo.analysis.run_figures import Metric
from torchzoo.history import queries
from torchzoo.history.index import INDEX_NAME, Index, check_index, open_index
from torchzoo.history.schema import SCHEMA, DamagedIndex, HistoryError
from torchzoo.store import RunStore


@pytest.fixture(scope="module")
def year(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return nights(tmp_path_factory.mktemp("nights"), count=4, step_at=2)


@pytest.fixture
def runs(year: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(year, tmp_path / "runs"))


def everything(index: Index) -> list[object]:
    """What the index knows, whatever the numbers of its rows."""
    return [
        (one.case, one.machine, one.metric, one.basis, point.run.path, point.status, point.figure)
        for one in queries.series(index)
        for point in one.points
    ]


def test_series_say_what_the_folders_say(runs: Path, tmp_path: Path) -> None:
    with open_index(tmp_path / "i") as index:
        assert index.update([runs]).indexed == 4
        (one,) = queries.series(index, {"model": ["slower"]}, [Metric.LATENCY])
        assert one.machine == "a CPU, 2 cores"
        assert one.values == pytest.approx([0.02, 0.02 * 1.004, 0.022 * 0.997, 0.022 * 1.001])
        assert [point.run.torch for point in one.points] == ["2.14.0", "2.14.0", "2.15.0", "2.15.0"]
        assert [(c.name, c.before, c.after) for c in one.software_changes()[2]] == [("torch", "2.14.0", "2.15.0")]
        figure = one.points[0].figure
        assert figure is not None
        assert figure.low < figure.value < figure.high
        metrics = {(s.case.model, str(s.case.backend), s.metric) for s in queries.series(index)}
        assert ("same", "inductor", Metric.COMPILE_TIME) in metrics
        assert ("same", "inductor", Metric.DEVICE_MEMORY) in metrics
        assert ("slower", "eager", Metric.HOST_MEMORY) in metrics


def test_only_what_changed_is_read_again(runs: Path, tmp_path: Path) -> None:
    with open_index(tmp_path / "i") as index:
        index.update([runs])
        assert index.update([runs]).indexed == 0
        with RunStore(runs / "night_01", resume=True) as store:
            store.append(record(failed("out of luck"), model="same"))
        assert index.update([runs]).indexed == 1
        (one,) = queries.series(index, {"model": ["same"], "backend": ["eager"]}, [Metric.LATENCY])
        assert [point.status for point in one.points] == [Status.PASSED, Status.FAILED, Status.PASSED, Status.PASSED]
        assert "out of luck" in one.points[1].reason
        assert one.points[1].figure is None
        night(runs, 9, [record(eager_s(0.01), model="other")])
        shutil.rmtree(runs / "night_00")
        update = index.update([runs])
        assert (update.runs, update.indexed, update.removed) == (4, 1, 1)
        assert [len(one.points) for one in queries.series(index, {"model": ["slower"]}, [Metric.LATENCY])] == [3]


def test_runs_of_other_folders_stay(runs: Path, tmp_path: Path) -> None:
    elsewhere = tmp_path / "runs2"
    night(elsewhere, 5, [record(eager_s(0.01))])
    with open_index(tmp_path / "i") as index:
        index.update([runs, elsewhere])
        assert index.update([runs]).runs == 5


def test_unlike_machines_are_never_in_one_series(runs: Path, tmp_path: Path) -> None:
    night(runs, 9, [record(eager_s(0.5), model="slower", mode="train")], cpu="another CPU")
    with open_index(tmp_path / "i") as index:
        index.update([runs])
        found = queries.series(index, {"model": ["slower"]}, [Metric.LATENCY])
        assert {one.machine: len(one.points) for one in found} == {"a CPU, 2 cores": 4, "another CPU, 2 cores": 1}


def test_a_damaged_run_is_one_line_and_costs_no_other(runs: Path, tmp_path: Path) -> None:
    (runs / "night_00" / "run.json").write_text("{")
    with (runs / "night_01" / "records.jsonl").open("a") as file:
        file.write('{"case": \n')
    (runs / "night_02" / "records.jsonl").unlink()
    (runs / "night_02" / "records.jsonl").mkdir()
    with open_index(tmp_path / "i") as index:
        update = index.update([runs])
        assert {Path(name).name for name in update.problems} == {"night_00", "night_01", "night_02"}
        assert all("\n" not in text for text in update.problems.values())
        assert len(queries.runs(index)) == 2  # the night with one bad line, and the whole one
        assert index.update([runs]).problems == update.problems  # and it is said again


def test_a_deeper_folder_is_found_and_a_hidden_one_is_not(tmp_path: Path) -> None:
    night(tmp_path / "runs" / "2026" / "june", 1, [record(eager_s(0.01))])
    night(tmp_path / "runs" / ".trash", 2, [record(eager_s(0.01))])
    with open_index(tmp_path / "i") as index:
        assert index.update([tmp_path / "runs"]).runs == 1


@pytest.mark.parametrize("file", ["ab.json", "bisect.json"])
def test_runs_of_an_experiment_count_only_where_it_is_named(tmp_path: Path, file: str) -> None:
    experiment = tmp_path / "runs" / "2026" / "confirm"
    night(experiment / "base", 1, [record(eager_s(0.01))])
    (experiment / file).write_text("{}")
    night(tmp_path / "runs" / "2026" / "run", 2, [record(eager_s(0.01))])
    with open_index(tmp_path / "i") as index:
        assert index.update([tmp_path / "runs"]).runs == 1
        assert index.update([experiment]).runs == 2


def test_a_rebuilt_index_says_the_same(runs: Path, tmp_path: Path) -> None:
    with open_index(tmp_path / "i") as index:
        index.update([runs])
        before = everything(index)
    with open_index(tmp_path / "i", rebuild=True) as index:
        assert everything(index) == []
        index.update([runs])
        assert everything(index) == before


def test_an_index_of_an_older_version_is_made_again(runs: Path, tmp_path: Path) -> None:
    path = tmp_path / "i"
    with open_index(path) as index:
        index.update([runs])
        index.connection.execute(f"PRAGMA user_version = {SCHEMA - 1}")
    with open_index(path) as index:
        assert index.update([runs]).indexed == 4


def test_an_index_of_a_newer_version_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "i"
    with open_index(path) as index:
        index.connection.execute(f"PRAGMA user_version = {SCHEMA + 1}")
    with pytest.raises(HistoryError, match="newer torchzoo"), open_index(path):
        pass


def test_another_file_is_never_touched(tmp_path: Path) -> None:
    text = tmp_path / "notes.txt"
    text.write_text("my notes")
    other = tmp_path / "other.sqlite"
    connection = sqlite3.connect(other)
    connection.execute("CREATE TABLE mine (x)")
    connection.execute("PRAGMA user_version = 7")
    connection.commit()
    connection.close()
    for path in (text, other):
        content = path.read_bytes()
        for rebuild in (False, True):
            with pytest.raises(HistoryError, match="no index of torchzoo"), open_index(path, rebuild=rebuild):
                pass
        assert path.read_bytes() == content


def test_a_damaged_index_is_refused_and_can_be_rebuilt(runs: Path, tmp_path: Path) -> None:
    path = tmp_path / "i"
    with open_index(path) as index:
        index.update([runs])
        index.connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    content = bytearray(path.read_bytes())
    content[100:] = os.urandom(len(content) - 100)
    path.write_bytes(content)
    with pytest.raises(HistoryError, match="--rebuild"), open_index(path) as index:
        index.update([runs])
    with open_index(path, rebuild=True) as index:
        assert index.update([runs]).indexed == 4


@pytest.mark.parametrize(
    "begins", [bytes(range(156, 256)), b"SQLite format 3\0" + b"x" * 84, b"short"], ids=["other", "damaged", "short"]
)
def test_the_index_of_a_folder_is_rebuilt_whatever_its_header_is(runs: Path, begins: bytes) -> None:
    path = runs / INDEX_NAME
    with open_index(path) as index:
        index.update([runs])
    path.write_bytes(begins + path.read_bytes()[100:] if len(begins) == 100 else begins)
    with pytest.raises(DamagedIndex), open_index(path):
        pass
    with open_index(path, rebuild=True) as index:
        assert index.update([runs]).indexed == 4
    check_index(path)


def test_a_damaged_page_is_found_before_it_is_needed(runs: Path, tmp_path: Path) -> None:
    path = tmp_path / "i"
    with open_index(path) as index:
        index.update([runs])
        index.connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    check_index(path)
    content = bytearray(path.read_bytes())
    content[-4096:] = os.urandom(4096)
    path.write_bytes(content)
    with pytest.raises(DamagedIndex, match="--rebuild"):
        check_index(path)
    check_index(tmp_path / "no index yet")


def test_only_the_runs_below_some_folders(runs: Path, tmp_path: Path) -> None:
    elsewhere = tmp_path / "runs 2"
    night(elsewhere, 5, [record(eager_s(0.01), model="slower"), record(eager_s(0.01), model="elsewhere alone")])
    with open_index(tmp_path / "i") as index:
        index.update([runs, elsewhere])
        (one,) = queries.series(index, {"model": ["slower"]}, [Metric.LATENCY], below=[elsewhere])
        assert [point.run.name for point in one.points] == ["night_05"]
        assert len(queries.runs(index, [runs])) == 4
        assert queries.series(index, {"model": ["elsewhere alone"]}, below=[runs]) == []


def test_two_writers_at_once_make_one_index(runs: Path, tmp_path: Path) -> None:
    for number in range(10, 22):
        night(runs, number, [record(eager_s(0.01), model=f"m{number}")])
    path = tmp_path / "i"
    code = "import sys; from torchzoo.cli import main; sys.exit(main(sys.argv[1:]))"
    words = [sys.executable, "-c", code, "history", "index", str(runs), "--index", str(path)]
    processes = [
        subprocess.Popen(words, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) for _ in range(3)
    ]
    ended = [(*process.communicate(), process.returncode) for process in processes]
    assert [(error, code) for _, error, code in ended] == [("", 0)] * 3
    with open_index(path) as index:
        assert index.update([runs]).indexed == 0
        together = everything(index)
    with open_index(tmp_path / "alone") as index:
        index.update([runs])
        assert sorted(map(str, everything(index))) == sorted(map(str, together))


def open_at_once(path: Path, barrier: Barrier, answers: SimpleQueue[str]) -> None:
    barrier.wait()
    try:
        with open_index(path):
            answers.put("open")
    except HistoryError as error:
        answers.put(repr(error))


@pytest.mark.slow
def test_processes_that_make_one_new_index_at_once_wait_for_each_other(tmp_path: Path) -> None:
    """SQLite answers "locked" at once here, whatever its timeout: without a new try, 1 in 20 processes fails."""
    forked = multiprocessing.get_context("fork")
    barrier, answers = forked.Barrier(6), forked.SimpleQueue()
    for attempt in range(40):
        arguments = (tmp_path / str(attempt), barrier, answers)
        processes = [forked.Process(target=open_at_once, args=arguments) for _ in range(6)]
        for process in processes:
            process.start()
        assert [answers.get() for _ in processes] == ["open"] * 6
        for process in processes:
            process.join()


def test_a_folder_with_a_name_that_is_no_utf8_is_indexed(tmp_path: Path) -> None:
    folder = Path(os.fsdecode(os.fsencode(tmp_path) + b"/r\xff"))
    try:
        keep(folder, [record(eager_s(0.01))])
    except OSError:
        pytest.skip("the file system takes no such name")
    with open_index(tmp_path / "i") as index:
        assert index.update([tmp_path]).indexed == 1
        assert index.update([tmp_path]).indexed == 0
