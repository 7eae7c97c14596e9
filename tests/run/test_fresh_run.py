"""The turns of a userbenchmark with fresh processes: their order, what they share, what is kept, and going on."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import msgspec
import pytest

from examples import FACTS, INDUCTOR, measured, record
from fake_turns import FakeTurns
from in_this_process import refused
from kept_runs import keep
from torchzoo.analysis.cases import by_case
from torchzoo.case import Axes, Case, Mode
from torchzoo.errors import UsageError
from torchzoo.measure.fresh_turns import Ask, Turn
from torchzoo.record import Failed, FailureKind, Record, Skipped, Took
from torchzoo.run import turns
from torchzoo.run.experiment import Experiment, here, ready
from torchzoo.run.lanes import Lane
from torchzoo.run.request import RunRequest
from torchzoo.run.turns import make_fresh_lanes
from torchzoo.settings import Settings, Stage
from torchzoo.store import RunStore, StoreError, read_run
from torchzoo.studies.study import joined
from torchzoo.zoo.spec import ModelSpec
from user_models import make_folder

FAILED = Failed(kind=FailureKind.ERROR, stage=Stage.COMPILE, message="no")


class FakeProcesses(FakeTurns):
    """Fresh processes of which those of some functions fail."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.fail: set[str] = set()  # functions
        super().__init__(monkeypatch, self._answer)

    def _answer(self, ask: Ask) -> Took | Failed:
        return FAILED if ask.function in self.fail else Took(result={"number": len(self.asked)})


@pytest.fixture
def processes(monkeypatch: pytest.MonkeyPatch) -> FakeProcesses:
    return FakeProcesses(monkeypatch)


def request(zoo: Path, *names: str, repeats: int = 2) -> RunRequest:
    for name in names:
        make_folder(zoo, name)
    axes = Axes(modes=(Mode.EVAL,), devices=("cpu",), backends=(INDUCTOR,), repeats=repeats)
    return RunRequest(patterns=names, axes=axes, settings=Settings(), models_dirs=(str(zoo),))


def turns_of(case: Case, spec: ModelSpec, repeats: int) -> list[Turn]:
    assert (case.batch_size, spec.name) == (4, case.model)
    rounds = [
        Turn(role="alone", function="alone"),
        Turn(role="warm", function="warm", cache="shared", needs="prepare"),
        Turn(role="left out", function="never", skip="it can't"),
    ]
    prepare = [Turn(role="prepare", function="prepare", cache="shared")]
    return prepare + [msgspec.structs.replace(one, number=number) for number in range(repeats) for one in rounds]


def records_of(experiment: Experiment) -> list[Record]:
    with experiment.workers:
        return [record for _, record in experiment.run()]


def run(zoo: Path, out: Path, *names: str) -> list[Record]:
    with RunStore(out) as store:
        return records_of(ready(here(store), request(zoo, *names), turns_of=turns_of))


def test_turns_run_in_their_order_and_share_the_caches_that_they_name(tmp_path: Path, processes: FakeProcesses) -> None:
    records = run(tmp_path / "zoo", tmp_path / "out", "tiny")
    assert [ask.function for ask in processes.asked] == ["prepare", "alone", "warm", "alone", "warm"]
    assert processes.found_in_caches == [[], [], ["prepare"], [], ["prepare", "warm"]]
    assert not any(" " in ask.caches for ask in processes.asked)  # g++ gets the path without quotes
    assert not Path(processes.asked[0].folder).exists()
    assert [(one.role, one.number) for one in records] == [
        ("prepare", 0),
        ("alone", 0),
        ("warm", 0),
        ("left out", 0),
        ("alone", 1),
        ("warm", 1),
        ("left out", 1),
    ]
    assert [one.lane for one in records] == ["cpu", "cpu", "cpu", None, "cpu", "cpu", None]
    assert records[3].outcome == Skipped(reason="it can't")
    assert read_run(tmp_path / "out", in_turns=True).records == tuple(records)


def test_what_needs_something_that_failed_has_its_reason_and_does_not_run(
    tmp_path: Path, processes: FakeProcesses
) -> None:
    processes.fail = {"prepare"}
    records = run(tmp_path / "zoo", tmp_path / "out", "tiny")
    assert [ask.function for ask in processes.asked] == ["prepare", "alone", "alone"]
    assert [one.outcome for one in records if one.role == "warm"] == [FAILED, FAILED]


def test_what_failed_once_is_not_tried_again(tmp_path: Path, processes: FakeProcesses) -> None:
    processes.fail = {"alone"}
    records = run(tmp_path / "zoo", tmp_path / "out", "tiny")
    assert [ask.function for ask in processes.asked] == ["prepare", "alone", "warm", "warm"]
    assert [one.outcome for one in records if one.role == "alone"] == [FAILED, FAILED]


def cut_short(out: Path, kept: int) -> None:
    """Leave so many records, and half of the next one, as if it was killed while it wrote."""
    lines = (out / "records.jsonl").read_bytes().splitlines(keepends=True)
    (out / "records.jsonl").write_bytes(b"".join(lines[:kept]) + lines[kept][:40])


def go_on(out: Path, *, retry_failed: bool = False) -> list[Record]:
    with RunStore(out, resume=True) as store:
        return records_of(ready(here(store), turns_of=turns_of, retry_failed=retry_failed))


@pytest.mark.parametrize(
    ("kept", "asked"),
    [
        (13, []),  # what is left of the second case can't run
        (12, ["prepare", "warm"]),
        (11, ["prepare", "alone", "warm"]),
        (8, ["prepare", "alone", "warm", "alone", "warm"]),
    ],
)
def test_a_run_that_was_cut_short_keeps_each_record_and_goes_on_with_the_next_turn(
    kept: int, asked: list[str], tmp_path: Path, processes: FakeProcesses
) -> None:
    out = tmp_path / "out"
    whole = run(tmp_path / "zoo", out, "one", "two")
    cut_short(out, kept)
    processes.asked.clear()
    processes.found_in_caches.clear()
    new = go_on(out)
    assert [(ask.case.model, ask.function) for ask in processes.asked] == [("two", function) for function in asked]
    assert all(
        ask.function != "warm" or "prepare" in found
        for ask, found in zip(processes.asked, processes.found_in_caches, strict=True)
    )
    again = read_run(out, in_turns=True)
    assert again.damaged_lines == 1
    assert again.records == (*whole[:kept], *new)  # nothing is lost, and no turn has two records
    assert [(one.case, one.role, one.number) for one in again.records] == [
        (one.case, one.role, one.number) for one in whole
    ]
    assert go_on(out) == []


def test_what_failed_or_was_skipped_runs_again_where_that_is_asked_for(
    tmp_path: Path, processes: FakeProcesses
) -> None:
    out = tmp_path / "out"
    processes.fail = {"prepare"}
    whole = run(tmp_path / "zoo", out, "tiny")
    processes.fail = set()
    processes.asked.clear()
    assert go_on(out) == []
    new = go_on(out, retry_failed=True)
    assert [ask.function for ask in processes.asked] == ["prepare", "warm", "warm"]  # `alone` has its results
    assert {(one.role, isinstance(one.outcome, Took)) for one in new} == {
        ("prepare", True),
        ("warm", True),
        ("left out", False),
    }
    assert len(read_run(out, in_turns=True).records) == len(whole)  # the latest of each turn


def test_what_failed_before_a_run_was_cut_short_is_not_tried_again(tmp_path: Path, processes: FakeProcesses) -> None:
    processes.fail = {"alone"}
    run(tmp_path / "zoo", tmp_path / "out", "tiny")
    cut_short(tmp_path / "out", 4)
    processes.asked.clear()
    processes.fail = set()
    new = go_on(tmp_path / "out")
    assert [ask.function for ask in processes.asked] == ["prepare", "warm"]
    assert [one.outcome for one in new if one.role == "alone"] == [FAILED]


def test_what_can_not_be_prepared_again_is_the_reason_of_the_turns_that_are_left(
    tmp_path: Path, processes: FakeProcesses
) -> None:
    whole = run(tmp_path / "zoo", tmp_path / "out", "tiny")
    cut_short(tmp_path / "out", 4)
    processes.fail = {"prepare"}
    new = go_on(tmp_path / "out")
    assert [one.outcome for one in new if one.role == "warm"] == [FAILED]
    assert read_run(tmp_path / "out", in_turns=True).records[:4] == tuple(whole[:4])


def test_a_case_that_can_not_run_has_one_record_with_the_reason(tmp_path: Path, processes: FakeProcesses) -> None:
    asked = request(tmp_path / "zoo", "tiny")
    asked = msgspec.structs.replace(asked, axes=msgspec.structs.replace(asked.axes, modes=(Mode.DECODE,)))
    with RunStore(tmp_path / "out") as store:
        (record,) = records_of(ready(here(store), asked, turns_of=turns_of))
    assert isinstance(record.outcome, Skipped)
    assert "it does not generate" in record.outcome.reason
    assert processes.asked == []


# --- several at once ---


def several(zoo: Path, *names: str, jobs: int) -> RunRequest:
    return msgspec.structs.replace(request(zoo, *names), jobs=jobs)


@pytest.fixture
def four_cores(monkeypatch: pytest.MonkeyPatch) -> None:
    """Three of them for lanes, with two hyperthreads each."""
    cores = ((0, 4), (1, 5), (2, 6), (3, 7))
    monkeypatch.setattr(turns, "physical_cores", lambda _: cores)


@pytest.mark.usefixtures("four_cores")
def test_two_cases_run_at_once_on_cores_of_their_own_each_in_its_order(
    tmp_path: Path, processes: FakeProcesses
) -> None:
    with RunStore(tmp_path / "out") as store:
        asked_for = several(tmp_path / "zoo", "one", "two", jobs=2)
        records = records_of(ready(here(store), asked_for, turns_of=turns_of))
    assert {ask.case.model for ask in processes.asked[:2]} == {"one", "two"}
    for model in ("one", "two"):
        asked = [ask for ask in processes.asked if ask.case.model == model]
        assert [ask.function for ask in asked] == ["prepare", "alone", "warm", "alone", "warm"]
        assert len({ask.cores for ask in asked}) == 1
    assert {ask.cores for ask in processes.asked} == {(1, 5), (2, 6)}
    kept = read_run(tmp_path / "out", in_turns=True)
    assert len(records) == len(kept.records) == kept.manifest.turns == 14
    assert kept.manifest.settings.jobs == 2


@pytest.mark.usefixtures("four_cores")
def test_lanes_take_turns_with_the_devices() -> None:
    lanes = make_fresh_lanes(3, ["cuda"], (0, 1), FACTS)
    assert [(lane.device, lane.cores) for lane in lanes] == [("cuda:0", (1, 5)), ("cuda:1", (2, 6)), ("cuda:0", (3, 7))]
    assert make_fresh_lanes(1, ["cuda"], (1,), FACTS) == (Lane(device="cuda:1", jobs=1),)
    assert [lane.device for lane in make_fresh_lanes(1, ["cpu", "cuda"], None, FACTS)] == ["cpu", "cuda"]


@pytest.mark.usefixtures("four_cores")
@pytest.mark.parametrize(
    ("jobs", "devices", "indices", "words"),
    [
        (4, ["cuda"], None, "--jobs 4: each process needs a core of its own, and there are 3"),
        (1, ["cpu"], (0,), "and these are on cpu"),
        (1, ["cuda"], (2,), "no device 2; there is 2 of cuda"),
    ],
)
def test_lanes_that_the_machine_can_not_have(
    jobs: int, devices: list[str], indices: tuple[int, ...] | None, words: str
) -> None:
    with pytest.raises(UsageError, match=words):
        make_fresh_lanes(jobs, devices, indices, FACTS)


@pytest.mark.usefixtures("processes")
def test_a_search_for_the_batch_is_refused(tmp_path: Path) -> None:
    asked = request(tmp_path / "zoo", "tiny")
    asked = msgspec.structs.replace(asked, axes=msgspec.structs.replace(asked.axes, batch_sizes=("auto",)))
    with RunStore(tmp_path / "out") as store, pytest.raises(UsageError, match="--bs auto"):
        ready(here(store), asked, turns_of=turns_of)


@pytest.mark.usefixtures("processes")
def test_a_userbenchmark_refuses_a_case_before_anything_is_kept(tmp_path: Path) -> None:
    def refuses(*_: object) -> list[Turn]:
        raise UsageError("not this backend")

    with RunStore(tmp_path / "out") as store:
        with pytest.raises(UsageError, match="not this backend"):
            ready(here(store), request(tmp_path / "zoo", "tiny"), turns_of=refuses)
        assert not (tmp_path / "out" / "run.json").exists()


@pytest.mark.usefixtures("processes")
@pytest.mark.parametrize(
    "words",
    [
        "report {}",
        "run --resume {}",
        "userbenchmark optim --from {}",
    ],
)
def test_what_reads_whole_cases_says_what_reads_turns(words: str, tmp_path: Path) -> None:
    run(tmp_path / "zoo", tmp_path / "out", "tiny")
    line = refused(*words.format(tmp_path / "out", tmp_path / "out").split())
    assert f"torchzoo userbenchmark NAME --from {tmp_path / 'out'}" in line


def test_what_reads_turns_says_what_reads_whole_cases(tmp_path: Path) -> None:
    out = keep(tmp_path / "out", [record(measured())])
    assert f"torchzoo report {out}" in refused("userbenchmark", "warm_start", "--from", out)


@pytest.mark.usefixtures("processes")
def test_a_result_that_can_not_be_read_again_is_a_failure_of_its_turn(tmp_path: Path) -> None:
    first, *_ = run(tmp_path / "zoo", tmp_path / "out", "tiny")
    with RunStore(tmp_path / "out", resume=True) as store:
        kept = store.append(msgspec.structs.replace(first, outcome=Took(result={"graphs": object()})))
    assert isinstance(kept.outcome, Failed)
    assert (kept.role, kept.number) == ("prepare", 0)


@pytest.mark.usefixtures("processes")
def test_folders_are_joined(tmp_path: Path) -> None:
    first, second = tmp_path / "first", tmp_path / "second"
    run(tmp_path / "zoo", first, "tiny")
    records = run(tmp_path / "larger", second, "tiny", "small")
    (again,) = {record.case for record in records if record.case.model == "tiny"}
    both = joined([first, second, first], in_turns=True)
    assert [part.path for part in both.parts] == [first, second]
    assert by_case(both.records)[again] == [record for record in records if record.case == again]  # the last one counts
    assert (len(by_case(both.records)), len(both.manifest.cases)) == (2, 4)  # of two repeats


@pytest.mark.usefixtures("processes")
def test_folders_of_other_software_are_not_joined(tmp_path: Path) -> None:
    run(tmp_path / "zoo", tmp_path / "first", "tiny")
    shutil.copytree(tmp_path / "first", tmp_path / "second")
    manifest = json.loads((tmp_path / "second" / "run.json").read_text())
    manifest["environment"]["torch"] = "1.0"
    (tmp_path / "second" / "run.json").write_text(json.dumps(manifest))
    with pytest.raises(StoreError, match=r"can't stand in one report: torch is .* and 1\.0\. Report each alone"):
        joined([tmp_path / "first", tmp_path / "second"], in_turns=True)
