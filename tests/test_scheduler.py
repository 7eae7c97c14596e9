"""Following workers, with fake ones: stages, time limits, kills, and what a death is called."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path

import pytest

from examples import CASE, SPEC, measured
from torchzoo.plan import Entry
from torchzoo.record import Case, Failed, FailureKind, Outcome, Skipped, Stage
from torchzoo.scheduler import Exited, Message, run_plan, watch
from torchzoo.spec import ModelSpec

LIMIT_S = 60.0


class FakeWorker:
    """Sends scripted messages, each after its number of seconds on a fake clock; then stays silent."""

    def __init__(self, script: list[tuple[float, Message]]) -> None:
        self.script = script
        self.now_s = 0.0
        self.killed = False

    def next_message(self, timeout_s: float) -> Message | None:
        after_s = self.script[0][0] if self.script else float("inf")
        if after_s > timeout_s:
            self.now_s += timeout_s
            if self.script:
                self.script[0] = (after_s - timeout_s, self.script[0][1])
            return None
        self.now_s += after_s
        return self.script.pop(0)[1]

    def kill(self) -> None:
        self.killed = True

    def watch(self, log: Path = Path("worker.log")) -> tuple[Outcome, list[Stage]]:
        stages: list[Stage] = []
        return watch(self, log, LIMIT_S, stages.append, lambda: self.now_s), stages


def test_an_outcome_is_passed_on_with_the_stages_before_it() -> None:
    worker = FakeWorker([(3, Stage.BUILD), (50, Stage.MEASURE), (50, measured()), (1, Exited(0))])
    assert worker.watch() == (measured(), [Stage.BUILD, Stage.MEASURE])
    assert not worker.killed


def test_each_stage_has_the_limit_to_itself_and_one_that_hangs_is_named() -> None:
    worker = FakeWorker([(59, Stage.BUILD), (59, Stage.COMPILE), (61, measured())])
    outcome, _ = worker.watch()
    assert isinstance(outcome, Failed)
    assert (outcome.kind, outcome.stage) == (FailureKind.TIMEOUT, Stage.COMPILE)
    assert worker.killed
    assert worker.now_s == pytest.approx(59 + 59 + LIMIT_S)


def test_a_worker_that_has_answered_but_will_not_end_is_killed_and_its_answer_kept() -> None:
    worker = FakeWorker([(1, measured())])
    assert worker.watch()[0] == measured()
    assert worker.killed


@pytest.mark.parametrize(
    ("code", "words"),
    [(-11, "SIGSEGV in compile"), (-9, "SIGKILL in compile; the kernel does so"), (3, "status 3 in compile"), (0, "0")],
)
def test_a_death_without_an_outcome_is_a_crash_with_its_log(tmp_path: Path, code: int, words: str) -> None:
    log = tmp_path / "log"
    log.write_text("x" * 5000 + "last words")
    outcome, _ = FakeWorker([(1, Stage.COMPILE), (1, Exited(code))]).watch(log)
    assert isinstance(outcome, Failed)
    assert outcome.kind is FailureKind.CRASHED
    assert words in outcome.message
    assert outcome.traceback.endswith("last words")
    assert len(outcome.traceback) == 4000
    assert outcome.log == str(log)


def test_one_failure_does_not_cost_the_others_and_settled_entries_start_nothing(tmp_path: Path) -> None:
    launched: list[Case] = []
    scripts: list[list[tuple[float, Message]]] = [[(1, Exited(-6))], [(1, measured()), (1, Exited(0))]]

    @contextlib.contextmanager
    def launch(case: Case, spec: ModelSpec, log: Path) -> Iterator[FakeWorker]:
        assert spec is SPEC
        launched.append(case)
        yield FakeWorker(scripts.pop(0))

    skipped = Skipped(reason="no")
    plan = (Entry(case=CASE, spec=SPEC), Entry(case=CASE, spec=SPEC, settled=skipped), Entry(case=CASE, spec=SPEC))
    records = list(run_plan(plan, launch, lambda number, _: tmp_path / str(number), LIMIT_S))
    assert [type(r.outcome).__name__ for r in records] == ["Failed", "Skipped", "Measured"]
    assert len(launched) == 2
    assert all(r.started_at <= r.finished_at for r in records)
