"""Workers that hang or die, on a fake clock: limits of stages, and what a death is called."""

from __future__ import annotations

from pathlib import Path

import pytest
from fake_workers import GOOD, FakeWorkers, Script, entries, outcomes, scheduler

from examples import measured
from torchzoo.record import Check, CheckStatus, Failed, FailureKind, Measured
from torchzoo.run.failures import died, end_of
from torchzoo.run.lines import Garbled
from torchzoo.run.scheduler import STACKS_S
from torchzoo.run.windows import ANSWER_TO_OPENING_S
from torchzoo.run.workers import Exited, Message, Timed
from torchzoo.settings import Stage

# --- limits ---


@pytest.mark.parametrize(
    ("script", "stage", "limit_s"),
    [
        ([(1, Stage.BUILD)], Stage.BUILD, 60),
        ([(1, Stage.COMPILE)], Stage.COMPILE, 100),
        ([(1, Stage.WAIT), (0, Stage.MEASURE)], Stage.MEASURE, 30),
    ],
)
def test_a_stage_that_hangs_is_killed_at_its_limit_and_named(script: Script, stage: Stage, limit_s: float) -> None:
    workers = FakeWorkers({"hangs": [script]})
    (record,) = scheduler(workers).run(entries("hangs"))
    assert isinstance(record.outcome, Failed)
    assert (record.outcome.kind, record.outcome.stage) == (FailureKind.TIMEOUT, stage)
    assert workers.asked_for_stacks == [1]
    assert workers.now_s == pytest.approx(1 + limit_s + STACKS_S)
    assert workers.did("kill") == [(workers.now_s, "hangs@cpu")]


LATE = STACKS_S / 2


@pytest.mark.parametrize(
    "end",
    [
        [(LATE, measured()), (0, Exited(0))],
        [(LATE, Exited(0))],
        [(LATE, Garbled("nonsense"))],
        [(LATE, Timed(measured())), (0, Stage.EXAMINE), (0, measured())],
        [(LATE, Stage.EXAMINE), (STACKS_S / 4, measured()), (0, Exited(0))],
    ],
    ids=["outcome", "exit", "garbage", "timing", "stage"],
)
def test_what_comes_while_stacks_are_written_comes_too_late(end: Script) -> None:
    (_, first), *rest = end
    workers = FakeWorkers({"late": [[(1, Stage.WAIT), (0, Stage.MEASURE), (30 + LATE, first), *rest]]})
    (record,) = scheduler(workers).run(entries("late"))
    assert isinstance(record.outcome, Failed)
    assert (record.outcome.kind, record.outcome.stage) == (FailureKind.TIMEOUT, Stage.MEASURE)
    assert workers.now_s <= 31 + STACKS_S


TIMED = measured(check=Check(status=CheckStatus.NOT_REACHED))
FAILURE = Failed(kind=FailureKind.ERROR, stage=Stage.CHECK, message="RuntimeError: no")


@pytest.mark.parametrize(
    ("end", "kind"),
    [
        ([(1, FAILURE), (0, Exited(0))], FailureKind.ERROR),
        ([(1, Exited(-11))], FailureKind.CRASHED),
        ([(1e6, measured())], FailureKind.TIMEOUT),
        ([(1, Garbled("nonsense"))], FailureKind.CRASHED),
    ],
)
def test_what_fails_after_the_timing_does_not_cost_the_timing(end: Script, kind: FailureKind) -> None:
    timed: Script = [(1, Stage.WAIT), (0, Stage.MEASURE), (5, Timed(TIMED)), (0, Stage.EXAMINE), (0, Stage.CHECK), *end]
    (record,) = scheduler(FakeWorkers({"a": [timed]})).run(entries("a"))
    assert isinstance(record.outcome, Measured)
    failed = record.failure
    assert failed is not None
    assert (failed.kind, failed.stage) == (kind, Stage.CHECK)
    why = f"{kind} in check: {failed.message}"
    assert record.outcome == measured(check=Check(status=CheckStatus.NOT_REACHED, reason=why), cut_short=failed)


def test_what_is_measured_whole_has_its_last_figures() -> None:
    whole = measured(check=Check(status=CheckStatus.CORRECT))
    script: Script = [(1, Stage.WAIT), (0, Stage.MEASURE), (5, Timed(TIMED)), (1, whole), (0, Exited(0))]
    (record,) = scheduler(FakeWorkers({"a": [script]})).run(entries("a"))
    assert record.outcome == whole
    assert record.failure is None


def test_training_that_is_not_finite_is_not_measured_whatever_came_before() -> None:
    failed = Failed(kind=FailureKind.NOT_FINITE, stage=Stage.EXAMINE, message="not finite")
    script: Script = [(1, Stage.WAIT), (0, Stage.MEASURE), (5, Timed(TIMED)), (1, failed), (0, Exited(0))]
    (record,) = scheduler(FakeWorkers({"a": [script]})).run(entries("a"))
    assert record.outcome == failed


def test_a_hang_in_the_window_frees_those_it_stopped() -> None:
    hangs: Script = [(1, Stage.WAIT), (0, Stage.MEASURE)]
    workers = FakeWorkers({"hangs": [hangs], "good": [GOOD]})
    found = outcomes(list(scheduler(workers).run(entries("hangs", "good"))))
    assert found["hangs"].kind is FailureKind.TIMEOUT
    assert found["good"] == measured()


def test_time_spent_stopped_or_waiting_does_not_count_against_a_limit() -> None:
    # The slow one compiles for 90 of its 100 s, and is stopped for 4 x 25 s meanwhile.
    quick: Script = [(1, Stage.WAIT), (0, Stage.MEASURE), (25, measured()), (0, Exited(0))]
    slow: Script = [(1, Stage.COMPILE), (90, Stage.WAIT), (0, Stage.MEASURE), (1, measured()), (0, Exited(0))]
    workers = FakeWorkers({"slow": [slow], **{name: [quick] for name in "abcd"}})
    found = outcomes(list(scheduler(workers, jobs=5).run(entries("slow", *"abcd"))))
    assert found["slow"] == measured()


def test_time_in_which_the_runner_was_stopped_counts_for_no_limit() -> None:
    workers = FakeWorkers(
        {"a": [[(1, Stage.BUILD), (50, Stage.WAIT), (0, Stage.MEASURE), (5, measured()), (1, Exited(0))]]}
    )
    under_test = scheduler(workers)
    wait = workers.wait

    def stopped_once(timeout_s: float) -> list[tuple[int, Message]]:
        messages = wait(min(timeout_s, 10.0))
        if workers.now_s == 11.0:  # in the build, of whose 60 s ten are over
            workers.now_s += 1000.0
        return messages

    workers.wait = stopped_once  # type: ignore[method-assign]
    (record,) = under_test.run(entries("a"))
    assert record.outcome == measured()


def test_a_worker_that_has_answered_but_does_not_end_is_killed_and_its_answer_kept() -> None:
    workers = FakeWorkers({"lingers": [[(1, Stage.WAIT), (0, Stage.MEASURE), (1, measured())]], "good": [GOOD]})
    found = outcomes(list(scheduler(workers).run(entries("lingers", "good"))))
    assert found == {"lingers": measured(), "good": measured()}


def test_a_worker_that_does_not_begin_when_its_window_opens_is_late() -> None:
    silent: Script = [(1, Stage.BUILD), (1, Stage.WAIT)]
    workers = FakeWorkers({"a": [silent], "b": [GOOD]})
    records = list(scheduler(workers).run(entries("a", "b")))
    found = outcomes(records)
    assert (found["a"].kind, found["a"].stage) == (FailureKind.TIMEOUT, Stage.WAIT)
    assert found["b"] == measured()
    assert workers.did("kill")[0] == (2 + ANSWER_TO_OPENING_S + STACKS_S, "a@cpu")


# --- deaths ---


def test_a_worker_that_sends_garbage_fails_in_the_stage_it_was_in_and_the_others_go_on() -> None:
    garbled: Script = [(1, Stage.BUILD), (1, Garbled("it sent what is no message"))]
    workers = FakeWorkers({"a": [garbled], "b": [GOOD]})
    found = outcomes(list(scheduler(workers).run(entries("a", "b"))))
    assert (found["a"].kind, found["a"].stage) == (FailureKind.CRASHED, Stage.BUILD)
    assert "no message" in found["a"].message
    assert found["b"] == measured()


@pytest.mark.parametrize(
    ("code", "words"),
    [(-11, "SIGSEGV in compile"), (-9, "SIGKILL in compile; the kernel does so"), (3, "status 3 in compile")],
)
def test_a_death_is_a_crash_with_the_end_of_its_log(tmp_path: Path, code: int, words: str) -> None:
    log = tmp_path / "log"
    log.write_text("x" * 5000 + "last words")
    outcome = died(code, Stage.COMPILE, log)
    assert outcome.kind is FailureKind.CRASHED
    assert words in outcome.message
    assert outcome.traceback.endswith("last words")
    assert len(outcome.traceback) == 4000


def test_of_a_large_log_only_the_end_is_read(tmp_path: Path) -> None:
    log = tmp_path / "log"
    with log.open("wb") as file:
        file.seek(10 * 2**30)  # a hole: it takes no space
        file.write("\nSegmentation fault é".encode())
    failed = died(1, Stage.BUILD, log)
    assert failed.traceback is not None
    assert failed.traceback.endswith("Segmentation fault é")
    assert len(failed.traceback) <= 4000


@pytest.mark.parametrize(
    ("text", "end"),
    [
        ("one\ntwo\n", "two\n"),  # of "e\ntwo\n" only the whole line
        ("to\nthree", "three"),
        ("to\nthree\n", "three\n"),  # exactly the line
        ("six6six", "ix6six"),  # a line that is too long by itself
        ("short", "short"),
        ("", ""),
    ],
)
def test_the_end_of_a_text_begins_with_a_whole_line(text: str, end: str) -> None:
    assert end_of(text, 6) == end
