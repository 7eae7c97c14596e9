"""Measuring windows with fake workers on a fake clock: who is measured when, who stands still meanwhile."""

from __future__ import annotations

import msgspec
import pytest
from fake_workers import GOOD, LIMITS, FakeWorkers, Script, entries, scheduler, two_lanes

from examples import measured
from torchzoo.record import Failed, Measured
from torchzoo.run.lanes import Lane
from torchzoo.run.windows import PATIENCE_S
from torchzoo.run.workers import Exited
from torchzoo.settings import Stage


def test_lanes_with_their_own_cores_measure_at_the_same_time() -> None:
    lanes = (Lane(device="cuda:0", cores=(0, 1)), Lane(device="cuda:1", cores=(2, 3)))
    workers = FakeWorkers({name: [GOOD] for name in "abcd"})
    workers.start = lambda *a: FakeWorkers.start(workers, *a) if not workers.measuring else None  # type: ignore[method-assign]
    records = list(scheduler(workers, jobs=4, lanes=lanes).run(entries(*"abcd", device="cuda")))
    assert sorted(record.lane for record in records if record.lane) == ["cuda:0", "cuda:0", "cuda:1", "cuda:1"]
    assert workers.now_s == pytest.approx(31 + 2 * 5 + 1)


def test_nothing_prepares_on_any_lane_while_a_window_is_open() -> None:
    # b compiles for long on the other lane. a is ready after 31 s and waits for it as long as patience lasts.
    compiles_s = 40 + PATIENCE_S
    long: Script = [(1, Stage.COMPILE), (compiles_s, Stage.WAIT), (0, Stage.MEASURE), (5, measured()), (1, Exited(0))]
    workers = FakeWorkers({"a": [GOOD], "b": [long]})
    list(scheduler(workers, jobs=2, lanes=two_lanes()).run(entries("a", "b", device="cuda")))
    assert [beside for _, beside, _ in workers.journal if beside.startswith("measure")] == ["measure beside []"] * 2
    ((a_s, _), (b_s, _)) = workers.did("measure")
    assert a_s == pytest.approx(31 + PATIENCE_S)
    assert b_s == pytest.approx(1 + compiles_s + 5)  # it stood still while a was measured


def test_an_epoch_waits_until_each_lane_has_cases_ready_and_measures_as_many_on_each() -> None:
    def after(seconds: float) -> Script:
        return [(seconds, Stage.WAIT), (0, Stage.MEASURE), (5, measured()), (1, Exited(0))]

    workers = FakeWorkers({"a": [after(1)], "b": [after(6)], "c": [after(2)], "d": [after(3)]})
    list(scheduler(workers, jobs=4, lanes=two_lanes()).run(entries(*"abcd", device="cuda")))
    started = [when for when, _ in workers.did("measure")]
    assert started == pytest.approx([6, 6, 11, 11])  # two on each lane, side by side


def test_what_was_measured_stands_still_until_the_epoch_is_over() -> None:
    # a examines for 20 s after its window. b's window on the other lane is open for 30 s.
    examines: Script = [
        (1, Stage.WAIT), (0, Stage.MEASURE), (5, Stage.EXAMINE), (20, measured()), (1, Exited(0))
    ]  # fmt: skip
    long: Script = [(1, Stage.WAIT), (0, Stage.MEASURE), (29, measured()), (1, Exited(0))]
    workers = FakeWorkers({"a": [examines], "b": [long]})
    records = list(scheduler(workers, jobs=2, lanes=two_lanes()).run(entries("a", "b", device="cuda")))
    assert {record.case.model: record.paused_s for record in records} == {"a": pytest.approx(24), "b": 0.0}
    assert workers.now_s == pytest.approx(1 + 29 + 20 + 1)


def test_an_epoch_does_not_wait_for_who_was_measured() -> None:
    # a is measured once its patience is over, and examines for long. b on the other lane is ready while it does.
    examines: Script = [
        (1, Stage.WAIT), (0, Stage.MEASURE), (5, Stage.EXAMINE), (60, measured()), (1, Exited(0))
    ]  # fmt: skip
    later: Script = [
        (1, Stage.COMPILE), (19 + PATIENCE_S, Stage.WAIT), (0, Stage.MEASURE), (5, measured()), (1, Exited(0))
    ]  # fmt: skip
    workers = FakeWorkers({"a": [examines], "b": [later]})
    list(scheduler(workers, jobs=2, lanes=two_lanes()).run(entries("a", "b", device="cuda")))
    ((a_s, _), (b_s, _)) = workers.did("measure")
    assert a_s == pytest.approx(1 + PATIENCE_S)  # b might have been ready soon
    assert b_s == pytest.approx(20 + PATIENCE_S + 5)  # it stood still while a was measured


def test_who_waits_to_be_measured_takes_no_job_but_there_is_a_limit() -> None:
    slow: Script = [(500, Stage.WAIT), (0, Stage.MEASURE), (5, measured()), (1, Exited(0))]
    quick: Script = [(1, Stage.WAIT), (0, Stage.MEASURE), (5, measured()), (1, Exited(0))]
    workers = FakeWorkers({"slow": [slow], **{name: [quick] for name in "abcdef"}})
    limits = msgspec.structs.replace(LIMITS, build_s=1000)
    under_test = scheduler(workers, jobs=2, lanes=two_lanes())
    under_test.limits = limits
    assert len(list(under_test.run(entries("slow", *"abcdef", device="cuda")))) == 7
    assert 2 < workers.most_alive <= 4


def test_environments_measure_a_case_in_the_order_in_which_it_was_started_whoever_is_ready_first() -> None:
    def after(seconds: float) -> Script:
        return [(seconds, Stage.WAIT), (0, Stage.MEASURE), (5, measured()), (1, Exited(0))]

    (planned,) = entries("a")
    plan = tuple(msgspec.structs.replace(planned, environment=name) for name in ("base", "candidate"))
    workers = FakeWorkers({"a": [after(20), after(1)], "b": [after(10)]})
    order = [(one.environment, one.case.model) for one, _ in scheduler(workers).run_planned((*plan, *entries("b")))]
    assert order == [("", "b"), ("base", "a"), ("candidate", "a")]


def test_a_case_whose_first_environment_fails_is_measured_by_the_other() -> None:
    (planned,) = entries("a")
    plan = tuple(msgspec.structs.replace(planned, environment=name) for name in ("base", "candidate"))
    crash: Script = [(20, Exited(7))]
    workers = FakeWorkers({"a": [crash, GOOD]})
    found = [(one.environment, type(record.outcome)) for one, record in scheduler(workers).run_planned(plan)]
    assert found == [("base", Failed), ("candidate", Measured)]


def ready_for(seconds: float) -> Script:
    """A case that is ready after a second, and is measured for so long."""
    return [(1, Stage.WAIT), (0, Stage.MEASURE), (seconds, measured()), (1, Exited(0))]


def test_a_lane_that_has_measured_its_share_goes_on_while_another_one_measures() -> None:
    seconds = {"a": 30.0, "b": 5.0, "c": 5.0, "d": 5.0}
    workers = FakeWorkers({name: [ready_for(s)] for name, s in seconds.items()})
    plan = (*entries("a", device="cuda:0"), *entries("b", "c", "d", device="cuda:1"))
    records = list(scheduler(workers, jobs=4, lanes=two_lanes()).run(plan))
    assert len(records) == 4
    assert [when for when, _ in workers.did("measure")] == pytest.approx([1, 1, 6, 11])
    assert workers.now_s == pytest.approx(1 + 30 + 1)


def test_an_epoch_ends_when_the_shares_are_measured_however_much_is_ready() -> None:
    """d and c are measured beside g. When g is done, f must wait although d is still measured: others prepare."""
    seconds = {"a": 5.0, "d": 20.0, "b": 5.0, "c": 5.0, "f": 5.0, "g": 8.0}
    workers = FakeWorkers({name: [ready_for(s)] for name, s in seconds.items()})
    lanes = (*two_lanes(), Lane(device="cuda:2", cores=(4, 5)))
    plan = [entries(*names, device=lane.device) for names, lane in zip(("ad", "bcf", "g"), lanes, strict=True)]
    list(scheduler(workers, jobs=6, lanes=lanes).run(tuple(case for some in plan for case in some)))
    assert [when for when, _ in workers.did("measure")] == pytest.approx([1, 1, 1, 6, 6, 26])
