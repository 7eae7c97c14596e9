"""A question to a fresh process: its answer, or how it ended. The functions are in `fresh_functions.py`."""

from __future__ import annotations

import contextlib
import os
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import msgspec
import psutil
import pytest

from examples import CASE, SPEC
from torchzoo.measure.trial_records import Ask, Took
from torchzoo.record import Failed, FailureKind, Skipped
from torchzoo.run.fresh import Alive, Outcome, outcome_of
from torchzoo.settings import Settings, Stage
from waiting import until


@pytest.fixture(autouse=True)
def functions_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONPATH", str(Path(__file__).parent))


def ask_for(function: str, folder: Path, **options: Any) -> Ask:
    return Ask(
        function=f"fresh_functions:{function}",
        case=CASE,
        spec=SPEC,
        settings=Settings(),
        options=options,
        folder=str(folder),
        caches=str(folder / "caches"),
        log=str(folder / "log"),
    )


def outcome(function: str, folder: Path, limit_s: float = 60.0, **options: Any) -> Outcome:
    return outcome_of(ask_for(function, folder, **options), limit_s, Alive())


def test_the_answer_comes_back_from_a_process_that_has_imported_nothing(tmp_path: Path) -> None:
    found = outcome("tells", tmp_path, size=3)
    assert isinstance(found, Took)
    assert 0 < found.result.pop("seconds") < 60
    assert found.result == {
        "case": CASE.label(),
        "options": {"size": 3},
        "caches": str(tmp_path / "caches" / "inductor"),
        "has_torch": False,
    }


def assert_ends(pid: int) -> None:
    """The process was killed, and is gone once the kernel has come to it."""
    with contextlib.suppress(psutil.NoSuchProcess):
        until(lambda: psutil.Process(pid).status() == psutil.STATUS_ZOMBIE)


def test_an_error_is_a_failure_with_its_stage_and_the_log_has_the_rest(tmp_path: Path) -> None:
    found = outcome("raises", tmp_path)
    assert isinstance(found, Failed)
    assert (found.kind, found.stage, found.message) == (FailureKind.ERROR, Stage.BUILD, "ValueError: no way")
    assert "in raises" in (tmp_path / "log").read_text()


def test_what_can_not_run_is_skipped_with_its_reason(tmp_path: Path) -> None:
    assert outcome("can_not", tmp_path) == Skipped(reason="there is nothing to do for tiny")


def test_a_process_that_dies_says_how_and_in_which_stage(tmp_path: Path) -> None:
    found = outcome("dies", tmp_path)
    assert isinstance(found, Failed)
    assert (found.kind, found.stage) == (FailureKind.CRASHED, Stage.COMPILE)
    assert "SIGKILL" in found.message


def test_a_process_that_hangs_is_killed_with_all_that_it_started(tmp_path: Path) -> None:
    found = outcome("hangs", tmp_path, limit_s=2.0)
    assert isinstance(found, Failed)
    assert (found.kind, found.stage, found.message) == (
        FailureKind.TIMEOUT,
        Stage.COMPILE,
        "the process took longer than 2 s and was killed",
    )
    assert_ends(int((tmp_path / "child").read_text()))


class SlowToKill(Alive):
    """The process answers after its time, and before it is killed."""

    def __init__(self, folder: Path) -> None:
        super().__init__()
        self.folder = folder

    def remove(self, pid: int) -> None:
        Path(self.folder, "is over").touch()
        until(lambda: psutil.Process(pid).status() == psutil.STATUS_ZOMBIE)
        super().remove(pid)


def test_an_answer_after_the_time_limit_does_not_count(tmp_path: Path) -> None:
    found = outcome_of(ask_for("answers_when_it_is_killed", tmp_path), 1.0, SlowToKill(tmp_path))
    assert isinstance(found, Failed)
    assert found.kind is FailureKind.TIMEOUT


def test_all_are_ended_at_once_and_so_is_what_starts_afterwards(tmp_path: Path) -> None:
    alive = Alive()
    ask = msgspec.structs.replace(ask_for("hangs", tmp_path), cores=(min(os.sched_getaffinity(0)),))
    with ThreadPoolExecutor() as threads:
        told = threads.submit(outcome_of, ask, 60.0, alive)
        until((tmp_path / "child").exists)
        child = int((tmp_path / "child").read_text())
        assert os.sched_getaffinity(child) == set(ask.cores)
        alive.end_all()
        found = told.result(10)
    assert isinstance(found, Failed)
    assert "SIGKILL" in found.message
    assert_ends(child)
    late = outcome_of(ask_for("tells", tmp_path), 60.0, alive)
    assert isinstance(late, Failed)
    assert late.stage is Stage.START
