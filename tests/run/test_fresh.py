"""The process of a turn: what it finds, and how its end is recorded. The functions are in `fresh_functions.py`."""

from __future__ import annotations

import contextlib
from pathlib import Path

import psutil
import pytest

from examples import CASE, SPEC
from torchzoo.machine.limits import usable_cores
from torchzoo.measure.fresh_turns import Turn
from torchzoo.record import Failed, FailureKind, Record, Skipped, Took
from torchzoo.run.lanes import Lane
from torchzoo.run.plan import PlannedCase
from torchzoo.run.pool import Pool, PoolRun, PoolWorkers
from torchzoo.run.scheduler import Scheduler
from torchzoo.settings import Settings, Stage, StageLimits

pytestmark = pytest.mark.xdist_group("run")


@pytest.fixture(autouse=True)
def functions_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONPATH", str(Path(__file__).parent))


def records_of(folder: Path, *turns: Turn, limit_s: float = 60.0, cores: tuple[int, ...] | None = None) -> list[Record]:
    settings = Settings(limits=StageLimits(build_s=limit_s, compile_s=0.0, measure_s=0.0))
    run = PoolRun(pool=Pool([]), settings=settings)
    plan = tuple(PlannedCase(case=CASE, spec=SPEC, turn=turn) for turn in turns)
    with PoolWorkers({"": run}) as workers:
        lanes = [Lane(device="cpu", jobs=1, cores=cores)]
        scheduler = Scheduler(workers, lanes, settings, log_path=lambda _: folder / "log")
        return list(scheduler.run(plan))


def turn(function: str, **changes: object) -> Turn:
    return Turn(**{"role": function, "function": f"fresh_functions:{function}", **changes})


def test_the_answer_comes_back_from_a_process_whose_server_has_not_loaded_torch(tmp_path: Path) -> None:
    first = turn("tells", options={"size": 3}, cache="shared")
    found = [one.outcome for one in records_of(tmp_path, first, turn("tells", number=1), cores=usable_cores()[:1])]
    results = [one.result for one in found if isinstance(one, Took)]
    assert len(results) == 2
    for result in results:
        assert 0 < result["seconds"] < 60
        assert result["case"] == CASE.label()
        assert not result["has_torch"]
        assert not result["server_has_torch"]
        assert result["cores"] == list(usable_cores()[:1])
        assert result["is_session_leader"]
    assert results[0]["options"] == {"size": 3}
    shared, own = (Path(result["caches"]) for result in results)
    assert shared.parent.name == "shared"
    assert ("torchzoo-shared-" in str(shared), "torchzoo-shared-" in str(own)) == (True, False)
    assert not own.parent.exists()


@pytest.mark.parametrize(
    ("function", "kind", "stage", "message"),
    [
        ("raises", FailureKind.ERROR, Stage.BUILD, "ValueError: no way"),
        ("returns_what_is_no_json", FailureKind.ERROR, Stage.START, "TypeError: "),
    ],
)
def test_a_process_that_fails_costs_its_own_turn(
    tmp_path: Path, function: str, kind: FailureKind, stage: Stage, message: str
) -> None:
    failed, other = (record.outcome for record in records_of(tmp_path, turn(function), turn("tells")))
    assert isinstance(failed, Failed)
    assert (failed.kind, failed.stage) == (kind, stage)
    assert failed.message.startswith(message)
    assert isinstance(other, Took)
    assert function != "raises" or "in raises" in (tmp_path / "log").read_text()


def test_what_can_not_run_is_skipped_with_its_reason(tmp_path: Path) -> None:
    (record,) = records_of(tmp_path, turn("can_not"))
    assert record.outcome == Skipped(reason="there is nothing to do for tiny")


def test_a_process_that_hangs_is_killed_with_all_that_it_started(tmp_path: Path) -> None:
    (record,) = records_of(tmp_path, turn("hangs", options={"pid": str(tmp_path / "child")}), limit_s=3.0)
    failed = record.outcome
    assert isinstance(failed, Failed)
    assert (failed.kind, failed.stage) == (FailureKind.TIMEOUT, Stage.COMPILE)
    assert failed.message == "the process took longer than 3 s and was killed"
    assert "in hangs" in failed.traceback  # it has written its stack
    with contextlib.suppress(psutil.NoSuchProcess):
        psutil.Process(int((tmp_path / "child").read_text())).wait(timeout=20)  # killed, until someone has reaped it
