"""Measuring windows of cases with several ranks that share devices, with fake workers on a fake clock."""

from __future__ import annotations

import msgspec
import pytest
from fake_workers import GOOD, LIMITS, FakeWorkers, Script, entries, multi_rank, scheduler, two_lanes

from examples import measured
from torchzoo.record import Failed, Measured, Record
from torchzoo.run.lanes import Lane
from torchzoo.run.plan import PlannedCase
from torchzoo.run.room import HOST_RESERVE_BYTES, WORKER_BYTES
from torchzoo.run.scheduler import MULTI_RANK_AT_ONCE
from torchzoo.run.windows import PATIENCE_S
from torchzoo.run.workers import Exited
from torchzoo.settings import Stage

PAIR = Lane(device="cuda:0", cores=(0, 1, 2, 3), devices=("cuda:0", "cuda:1"))


def of_ranks(ready_s: float, *, examine_s: float = 20.0) -> Script:
    """It is ready after so long, is measured for 5 s, and examined for so long."""
    return [
        (ready_s, Stage.WAIT),
        (0, Stage.MEASURE),
        (5, Stage.EXAMINE),
        (examine_s, measured()),
        (1, Exited(0)),
    ]


def run(workers: FakeWorkers, plan: tuple[PlannedCase, ...], *lanes: Lane) -> list[Record]:
    under_test = scheduler(workers, jobs=16, lanes=lanes or (PAIR,))
    limits = msgspec.structs.replace(LIMITS, build_s=1000)
    under_test.settings = msgspec.structs.replace(under_test.settings, limits=limits)
    return list(under_test.run(plan))


def test_cases_with_several_ranks_prepare_together_and_are_measured_one_after_the_other_when_all_are_ready() -> None:
    workers = FakeWorkers({"a": [of_ranks(10)], "b": [of_ranks(10 + 2 * PATIENCE_S)]})
    records = run(workers, multi_rank("a", "b"))
    assert [type(record.outcome) for record in records] == [Measured, Measured]
    assert [when for when, _ in workers.did("start")] == [0, 0]
    # a stopped b would keep the devices busy: a waits for it, however long
    assert [when for when, _ in workers.did("measure")] == pytest.approx([10 + 2 * PATIENCE_S, 15 + 2 * PATIENCE_S])
    assert {what for _, what, _ in workers.journal if what.startswith("measure")} == {"measure beside []"}
    # both are examined after the epoch, together
    assert workers.now_s == pytest.approx(10 + 2 * PATIENCE_S + 5 + 5 + 20 + 1)


def test_a_case_with_several_ranks_starts_when_no_other_waits_for_its_window() -> None:
    workers = FakeWorkers({"a": [of_ranks(10)], **{name: [of_ranks(20)] for name in "bcdef"}})
    run(workers, multi_rank(*"abcdef"))
    started = dict.fromkeys(name for _, name in workers.did("start"))
    assert list(started) == [f"{name}@cuda:0" for name in "abcdef"]
    at_once = [when for when, _ in workers.did("start")][:MULTI_RANK_AT_ONCE]
    assert at_once == [0] * MULTI_RANK_AT_ONCE
    later = [when for when, _ in workers.did("start")][MULTI_RANK_AT_ONCE:]
    assert later == pytest.approx([20 + MULTI_RANK_AT_ONCE * 5] * 2)  # beside the examination of those before


def test_no_window_opens_while_a_case_with_several_ranks_is_examined_on_the_same_devices() -> None:
    workers = FakeWorkers({name: [of_ranks(10, examine_s=100)] for name in "abcd"} | {"e": [of_ranks(1)]})
    run(workers, multi_rank(*"abcde"))
    (when, _) = workers.did("measure")[-1]
    assert when == pytest.approx(10 + 4 * 5 + 100 + 1)


def test_cases_with_several_ranks_on_other_devices_are_stopped_as_all_others_are() -> None:
    other = Lane(device="cuda:2", cores=(4, 5, 6, 7), devices=("cuda:2", "cuda:3"))
    workers = FakeWorkers({"a": [of_ranks(10)], "b": [of_ranks(30 + PATIENCE_S)]})
    run(workers, multi_rank("a", "b"), PAIR, other)
    assert [when for when, _ in workers.did("measure")] == pytest.approx([10 + PATIENCE_S, 30 + PATIENCE_S + 5])
    assert {what for _, what, _ in workers.journal if what.startswith("measure")} == {"measure beside []"}


@pytest.mark.parametrize("stage", [Stage.COMPILE, Stage.WAIT, Stage.EXAMINE])
def test_a_case_with_several_ranks_that_dies_holds_up_no_other(stage: Stage) -> None:
    before = {Stage.COMPILE: 0, Stage.WAIT: 1, Stage.EXAMINE: 3}[stage]
    dies: Script = [*of_ranks(5)[:before], (8, Exited(-9))]
    workers = FakeWorkers({"a": [dies], "b": [of_ranks(30)], "c": [of_ranks(1)]})
    workers.waiting = _WaitsNot(workers, "a") if stage is Stage.WAIT else workers.waiting
    records = run(workers, multi_rank("a", "b", "c"))
    found = {record.case.model: type(record.outcome) for record in records}
    assert found == {"a": Failed, "b": Measured, "c": Measured}


class _WaitsNot(set[int]):
    """The tickets that wait, without those of a model: it dies while it should wait."""

    def __init__(self, workers: FakeWorkers, model: str) -> None:
        self._workers, self._model = workers, model

    def add(self, ticket: int) -> None:
        if not self._workers.names[ticket].startswith(self._model):
            super().add(ticket)


def test_each_rank_of_a_case_with_several_ranks_needs_host_memory() -> None:
    workers = FakeWorkers({name: [of_ranks(10)] for name in "abc"})
    workers.available_bytes = int(HOST_RESERVE_BYTES + 5 * WORKER_BYTES)  # two cases of two ranks, not three
    run(workers, multi_rank("a", "b", "c"))
    assert [when for when, _ in workers.did("start")][:2] == [0, 0]
    assert workers.most_alive == 2


def test_cases_with_several_ranks_and_cases_with_one_rank_do_not_share_devices() -> None:
    single = entries("s", "t", device="cuda")
    workers = FakeWorkers({"a": [of_ranks(10, examine_s=0)], "s": [GOOD], "t": [GOOD]})
    records = run(workers, (*multi_rank("a"), *single), PAIR, *two_lanes())
    assert len(records) == 3
    (ranks_over_s,) = [when for when, name in workers.did("kill") if name == "a@cuda:0"]
    assert [when for when, _ in workers.did("start")] == pytest.approx([0, ranks_over_s, ranks_over_s])
