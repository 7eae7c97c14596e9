"""The turns of a userbenchmark with fresh processes: their order, what they share, what is kept, and going on."""

from __future__ import annotations

import json
import shutil
import threading
from pathlib import Path

import msgspec
import pytest

from examples import CASE, FACTS, INDUCTOR
from torchzoo.case import Axes, Case, Mode
from torchzoo.errors import UsageError
from torchzoo.measure.trial_records import Ask, Took, TrialRecord, Turn
from torchzoo.record import Failed, FailureKind, Skipped
from torchzoo.run import fresh, trials
from torchzoo.run.fresh import Alive, Outcome
from torchzoo.run.pool import Pool
from torchzoo.run.request import RunRequest
from torchzoo.run.trial_store import TrialStore, read_joined_trials, read_trials
from torchzoo.run.trials import new_trials, resumed_trials
from torchzoo.settings import Settings, Stage
from torchzoo.store import StoreError
from torchzoo.zoo.spec import ModelSpec
from user_models import make_folder

FAILED = Failed(kind=FailureKind.ERROR, stage=Stage.COMPILE, message="no")


class FakeProcesses:
    """Notes what fresh processes are asked, and answers at once."""

    def __init__(self) -> None:
        self.asked: list[Ask] = []
        self.fail: set[str] = set()  # functions
        self.found_in_caches: list[list[str]] = []

    def __call__(self, ask: Ask, limit_s: float, alive: Alive) -> Outcome:
        self.asked.append(ask)
        caches = Path(ask.caches)
        self.found_in_caches.append(sorted(path.name for path in caches.iterdir()))
        (caches / ask.function).touch()
        return FAILED if ask.function in self.fail else Took(result={"number": len(self.asked)})


@pytest.fixture
def processes(monkeypatch: pytest.MonkeyPatch) -> FakeProcesses:
    fake = FakeProcesses()
    monkeypatch.setattr(fresh, "outcome_of", fake)
    monkeypatch.setattr(Pool, "machine_info", lambda _: FACTS)
    return fake


def request(zoo: Path, *names: str, repeats: int = 2) -> RunRequest:
    for name in names:
        make_folder(zoo, name)
    axes = Axes(modes=(Mode.EVAL,), devices=("cpu",), backends=(INDUCTOR,), repeats=repeats)
    return RunRequest(patterns=names, axes=axes, settings=Settings(), models_dirs=(str(zoo),))


def turns_of(case: Case, spec: ModelSpec, repeats: int) -> list[Turn]:
    assert (case.batch_size, spec.name) == (4, case.model)
    rounds = [
        Turn(variant="alone", function="alone"),
        Turn(variant="warm", function="warm", cache="shared", needs="prepare"),
        Turn(variant="left out", function="never", skip="it can't"),
    ]
    prepare = [Turn(variant="prepare", function="prepare", cache="shared")]
    return prepare + [msgspec.structs.replace(one, number=number) for number in range(repeats) for one in rounds]


def run(zoo: Path, out: Path, *names: str) -> list[TrialRecord]:
    with TrialStore(out) as store:
        return list(new_trials(request(zoo, *names), store, turns_of).run(store, turns_of, lambda *_: None))


def test_turns_run_in_their_order_and_share_the_caches_that_they_name(tmp_path: Path, processes: FakeProcesses) -> None:
    records = run(tmp_path / "zoo", tmp_path / "out", "tiny")
    assert [ask.function for ask in processes.asked] == ["prepare", "alone", "warm", "alone", "warm"]
    assert processes.found_in_caches == [[], [], ["prepare"], [], ["prepare", "warm"]]
    assert not any(" " in ask.caches for ask in processes.asked)  # g++ gets the path without quotes
    assert not Path(processes.asked[0].folder).exists()
    assert [(one.variant, one.number) for one in records] == [
        ("prepare", 0),
        ("alone", 0),
        ("warm", 0),
        ("left out", 0),
        ("alone", 1),
        ("warm", 1),
        ("left out", 1),
    ]
    assert records[3].outcome == Skipped(reason="it can't")
    assert read_trials(tmp_path / "out").records == tuple(records)


def test_what_needs_something_that_failed_has_its_reason_and_does_not_run(
    tmp_path: Path, processes: FakeProcesses
) -> None:
    processes.fail = {"prepare"}
    records = run(tmp_path / "zoo", tmp_path / "out", "tiny")
    assert [ask.function for ask in processes.asked] == ["prepare", "alone", "alone"]
    assert [one.outcome for one in records if one.variant == "warm"] == [FAILED, FAILED]


def test_what_failed_once_is_not_tried_again(tmp_path: Path, processes: FakeProcesses) -> None:
    processes.fail = {"alone"}
    records = run(tmp_path / "zoo", tmp_path / "out", "tiny")
    assert [ask.function for ask in processes.asked] == ["prepare", "alone", "warm", "warm"]
    assert [one.outcome for one in records if one.variant == "alone"] == [FAILED, FAILED]


def cut_short(out: Path, kept: int) -> None:
    """Leave so many records, and half of the next one, as if it was killed while it wrote."""
    lines = (out / "trials.jsonl").read_bytes().splitlines(keepends=True)
    (out / "trials.jsonl").write_bytes(b"".join(lines[:kept]) + lines[kept][:40])


def go_on(out: Path, *, retry_failed: bool = False) -> list[TrialRecord]:
    with TrialStore(out, resume=True) as store:
        session = resumed_trials(read_trials(store.path), turns_of, retry_failed=retry_failed)
        return list(session.run(store, turns_of, lambda *_: None))


@pytest.mark.parametrize(
    ("kept", "asked"),
    [
        (13, []),  # what is left of the second case can't run
        (12, ["prepare", "warm"]),
        (11, ["prepare", "alone", "warm"]),
        (8, ["prepare", "alone", "warm", "alone", "warm"]),
    ],
)
def test_trials_that_were_cut_short_keep_each_record_and_go_on_with_the_next_turn(
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
    again = read_trials(out)
    assert again.damaged_lines == 1
    assert again.records == (*whole[:kept], *new)  # nothing is lost, and no turn has two records
    assert [(one.case, one.variant, one.number) for one in again.records] == [
        (one.case, one.variant, one.number) for one in whole
    ]
    with TrialStore(out, resume=True):
        assert resumed_trials(again, turns_of).left == ()


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
    assert {(one.variant, isinstance(one.outcome, Took)) for one in new} == {
        ("prepare", True),
        ("warm", True),
        ("left out", False),
    }
    assert len(read_trials(out).records) == len(whole)  # the latest of each turn


def test_what_failed_before_trials_were_cut_short_is_not_tried_again(tmp_path: Path, processes: FakeProcesses) -> None:
    processes.fail = {"alone"}
    run(tmp_path / "zoo", tmp_path / "out", "tiny")
    cut_short(tmp_path / "out", 4)
    processes.asked.clear()
    processes.fail = set()
    new = go_on(tmp_path / "out")
    assert [ask.function for ask in processes.asked] == ["prepare", "warm"]
    assert [one.outcome for one in new if one.variant == "alone"] == [FAILED]


def test_what_can_not_be_prepared_again_is_the_reason_of_the_turns_that_are_left(
    tmp_path: Path, processes: FakeProcesses
) -> None:
    whole = run(tmp_path / "zoo", tmp_path / "out", "tiny")
    cut_short(tmp_path / "out", 4)
    processes.fail = {"prepare"}
    new = go_on(tmp_path / "out")
    assert [one.outcome for one in new if one.variant == "warm"] == [FAILED]
    assert read_trials(tmp_path / "out").records[:4] == tuple(whole[:4])


def test_a_case_that_can_not_run_has_one_record_with_the_reason(tmp_path: Path, processes: FakeProcesses) -> None:
    asked = request(tmp_path / "zoo", "tiny")
    asked = msgspec.structs.replace(asked, axes=msgspec.structs.replace(asked.axes, modes=(Mode.DECODE,)))
    with TrialStore(tmp_path / "out") as store:
        (record,) = new_trials(asked, store, turns_of).run(store, turns_of, lambda *_: None)
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
    monkeypatch.setattr(trials, "physical_cores", lambda _: cores)


@pytest.mark.usefixtures("four_cores")
def test_two_cases_run_at_once_on_cores_of_their_own_each_in_its_order(
    tmp_path: Path, processes: FakeProcesses, monkeypatch: pytest.MonkeyPatch
) -> None:
    both_run = threading.Barrier(2, timeout=20)

    def outcome_of(ask: Ask, limit_s: float, alive: Alive) -> Outcome:
        both_run.wait()
        return processes(ask, limit_s, alive)

    monkeypatch.setattr(fresh, "outcome_of", outcome_of)
    with TrialStore(tmp_path / "out") as store:
        session = new_trials(several(tmp_path / "zoo", "one", "two", jobs=2), store, turns_of)
        records = list(session.run(store, turns_of, lambda *_: None))
    for model in ("one", "two"):
        asked = [ask for ask in processes.asked if ask.case.model == model]
        assert [ask.function for ask in asked] == ["prepare", "alone", "warm", "alone", "warm"]
        assert len({ask.cores for ask in asked}) == 1
    assert {ask.cores for ask in processes.asked} == {(1, 5), (2, 6)}
    assert len(records) == len(read_trials(tmp_path / "out").records) == 14
    assert read_trials(tmp_path / "out").manifest.settings.jobs == 2


def test_what_the_userbenchmark_raises_meanwhile_is_raised(tmp_path: Path, processes: FakeProcesses) -> None:
    def fails_later(case: Case, spec: ModelSpec, repeats: int) -> list[Turn]:
        if processes.asked:
            raise UsageError("not the second one")
        return turns_of(case, spec, repeats)

    with TrialStore(tmp_path / "out") as store:
        session = new_trials(request(tmp_path / "zoo", "one", "two"), store, fails_later)
        with pytest.raises(UsageError, match="not the second one"):
            list(session.run(store, fails_later, lambda *_: None))
    assert len(read_trials(tmp_path / "out").records) == 7


@pytest.mark.usefixtures("four_cores")
def test_lanes_take_turns_with_the_devices() -> None:
    lanes = trials.make_lanes(3, ["cuda"], (0, 1), FACTS)
    assert [(lane.device, lane.cores) for lane in lanes] == [("cuda:0", (1, 5)), ("cuda:1", (2, 6)), ("cuda:0", (3, 7))]
    assert trials.make_lanes(1, ["cuda"], (1,), FACTS) == (trials.TrialLane(device="cuda:1"),)
    assert trials.make_lanes(1, ["cpu"], None, FACTS) == (trials.TrialLane(),)


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
        trials.make_lanes(jobs, devices, indices, FACTS)


@pytest.mark.usefixtures("processes")
def test_a_search_for_the_batch_is_refused(tmp_path: Path) -> None:
    asked = request(tmp_path / "zoo", "tiny")
    asked = msgspec.structs.replace(asked, axes=msgspec.structs.replace(asked.axes, batch_sizes=("auto",)))
    with TrialStore(tmp_path / "out") as store, pytest.raises(UsageError, match="--bs auto"):
        new_trials(asked, store, turns_of)


@pytest.mark.usefixtures("processes")
def test_a_userbenchmark_refuses_a_case_before_anything_is_kept(tmp_path: Path) -> None:
    def refuses(*_: object) -> list[Turn]:
        raise UsageError("not this backend")

    with TrialStore(tmp_path / "out") as store:
        with pytest.raises(UsageError, match="not this backend"):
            new_trials(request(tmp_path / "zoo", "tiny"), store, refuses)
        assert not (tmp_path / "out" / "trials.json").exists()


@pytest.mark.usefixtures("processes")
def test_a_folder_is_written_by_one_and_holds_one(tmp_path: Path) -> None:
    run(tmp_path / "zoo", tmp_path / "out", "tiny")
    with pytest.raises(StoreError, match=r"holds a trials.json already"), TrialStore(tmp_path / "out"):
        pass
    with (
        TrialStore(tmp_path / "out", resume=True),
        pytest.raises(StoreError, match="another torchzoo"),
        TrialStore(tmp_path / "out", resume=True),
    ):
        pass
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "run.json").write_text("{}")
    with pytest.raises(StoreError, match=r"holds a run.json already"), TrialStore(tmp_path / "run"):
        pass
    with pytest.raises(StoreError, match=r"holds no trials.json"):
        read_trials(tmp_path / "run")
    (tmp_path / "out" / "trials.json").write_text("{")
    with pytest.raises(StoreError, match="can't read"):
        read_trials(tmp_path / "out")


@pytest.mark.usefixtures("processes")
def test_the_latest_record_of_a_turn_counts(tmp_path: Path) -> None:
    records = run(tmp_path / "zoo", tmp_path / "out", "tiny")
    later = msgspec.structs.replace(records[0], outcome=FAILED)
    with TrialStore(tmp_path / "out", resume=True) as store:
        store.append(later)
    assert read_trials(tmp_path / "out").records[0] == later
    assert read_trials(tmp_path / "out").by_case() == {later.case: [later, *records[1:]]}
    assert CASE not in read_trials(tmp_path / "out").by_case()


@pytest.mark.usefixtures("processes")
def test_folders_are_joined(tmp_path: Path) -> None:
    first, second = tmp_path / "first", tmp_path / "second"
    run(tmp_path / "zoo", first, "tiny")
    records = run(tmp_path / "larger", second, "tiny", "small")
    (again,) = {record.case for record in records if record.case.model == "tiny"}
    both = read_joined_trials([first, second, first])
    assert [part.path for part in both.parts] == [first, second]
    assert both.by_case()[again] == [record for record in records if record.case == again]  # the last one counts
    assert (len(both.by_case()), len(both.manifest.cases)) == (2, 4)  # of two repeats
    assert read_joined_trials([second]).parts == (read_joined_trials([second]),)


@pytest.mark.usefixtures("processes")
def test_folders_of_other_software_are_not_joined(tmp_path: Path) -> None:
    run(tmp_path / "zoo", tmp_path / "first", "tiny")
    shutil.copytree(tmp_path / "first", tmp_path / "second")
    manifest = json.loads((tmp_path / "second" / "trials.json").read_text())
    manifest["environment"]["torch"] = "1.0"
    (tmp_path / "second" / "trials.json").write_text(json.dumps(manifest))
    with pytest.raises(StoreError, match=r"can't stand in one report: torch is .* and 1\.0\. Report each alone"):
        read_joined_trials([tmp_path / "first", tmp_path / "second"])
