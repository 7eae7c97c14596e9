"""Scheduling with fake workers on a fake clock: order, jobs, promised memory, retries."""

from __future__ import annotations

import random
from itertools import accumulate

import msgspec
import pytest
from fake_workers import CHECKED, GOOD, FakeWorkers, Script, entries, outcomes, scheduler

from examples import CASE, INDUCTOR, SPEC, measured, variant_result
from torchzoo.case import CompileScope, Mode, Precision
from torchzoo.measure.fresh_turns import Turn
from torchzoo.record import Failed, FailureKind, Memory, Record, Skipped, Took
from torchzoo.run.lanes import Lane
from torchzoo.run.plan import Plan, PlannedCase
from torchzoo.run.room import kind_of
from torchzoo.run.workers import Exited, Timed
from torchzoo.settings import Stage

OOM = Failed(kind=FailureKind.OOM_DEVICE, stage=Stage.BUILD, message="out of memory")


def test_cases_prepare_together_and_each_is_measured_alone() -> None:
    workers = FakeWorkers({name: [GOOD] for name in "abcd"})
    records = list(scheduler(workers, jobs=4).run(entries(*"abcd")))
    assert [r.case.model for r in records] == list("abcd")
    assert all(record.outcome == measured() for record in records)
    assert workers.did("start") == [(0.0, f"{name}@cpu") for name in "abcd"]
    assert len(workers.did("measure beside []")) == 4
    assert workers.now_s == pytest.approx(31 + 4 * 5 + 1)  # together, then one after the other; not 4 * 37


def test_jobs_bounds_how_many_are_alive() -> None:
    workers = FakeWorkers({name: [GOOD] for name in "abcdef"})
    assert len(list(scheduler(workers, jobs=2).run(entries(*"abcdef")))) == 6
    assert workers.most_alive == 2


def test_one_job_is_one_after_the_other() -> None:
    workers = FakeWorkers({name: [GOOD] for name in "ab"})
    list(scheduler(workers, jobs=1).run(entries(*"ab")))
    assert workers.most_alive == 1
    assert workers.now_s == pytest.approx(2 * 37)


def test_a_failure_costs_no_other_and_settled_entries_start_nothing() -> None:
    workers = FakeWorkers({"dies": [[(1, Stage.BUILD), (1, Exited(-6))]], "good": [GOOD]})
    skipped = Skipped(reason="no")
    plan = (*entries("dies"), msgspec.structs.replace(entries("skipped")[0], resolved=skipped), *entries("good"))
    found = outcomes(list(scheduler(workers).run(plan)))
    assert found["skipped"] == skipped
    assert found["good"] == measured()
    assert found["dies"].kind is FailureKind.CRASHED
    assert "SIGABRT" in found["dies"].message
    assert len(workers.did("start")) == 2


def test_out_of_device_memory_beside_siblings_is_tried_once_more_alone() -> None:
    oom: Script = [(5, OOM), (0, Exited(0))]
    workers = FakeWorkers({"big": [oom, GOOD], "a": [GOOD], "b": [GOOD]})
    found = outcomes(list(scheduler(workers).run(entries("a", "big", "b"))))
    assert found == {"big": measured(), "a": measured(), "b": measured()}
    retried_s = workers.did("start")[-1][0]
    assert workers.did("start")[-1][1] == "big@cpu"
    assert retried_s >= max(when for when, name in workers.did("kill") if name != "big@cpu")


def test_a_check_out_of_memory_beside_siblings_is_tried_once_more_though_the_case_was_timed() -> None:
    script: Script = [*GOOD[:4], (5, Timed(measured())), (1, Stage.EXAMINE), (5, OOM), (0, Exited(0))]
    workers = FakeWorkers({"big": [script, GOOD], "twice": [script], "a": [GOOD]})
    found = outcomes(list(scheduler(workers).run(entries("a", "big", "twice"))))
    assert found == {"big": measured(), "twice": measured(cut_short=OOM), "a": measured()}


def test_a_retry_waits_until_a_lane_is_empty_and_holds_up_no_other_case() -> None:
    oom: Script = [(5, OOM), (0, Exited(0))]
    lanes = (Lane(device="cuda:0", cores=(0,)), Lane(device="cuda:1", cores=(1,)))
    names = [f"m{number}" for number in range(8)]
    workers = FakeWorkers({"big": [oom, GOOD]} | {name: [GOOD] for name in names})
    plan = entries("big", *names, device="cuda")
    found = outcomes(list(scheduler(workers, jobs=4, lanes=lanes).run(plan)))
    assert all(found[name] == measured() for name in ("big", *names))
    started = [name.partition("@")[0] for _, name in workers.did("start")]
    assert started == ["big", *names, "big"]


def test_out_of_device_memory_alone_or_twice_is_final() -> None:
    oom: Script = [(5, OOM), (0, Exited(0))]
    alone = FakeWorkers({"big": [oom]})
    assert outcomes(list(scheduler(alone).run(entries("big")))) == {"big": OOM}
    assert len(alone.did("start")) == 1
    twice = FakeWorkers({"big": [oom], "a": [GOOD]})
    assert outcomes(list(scheduler(twice).run(entries("big", "a"))))["big"] == OOM
    assert len(twice.did("start")) == 3


def test_a_case_that_names_a_device_runs_there() -> None:
    lanes = (Lane(device="cuda:0", cores=(0,)), Lane(device="cuda:1", cores=(1,)))
    workers = FakeWorkers({"a": [GOOD]})
    (record,) = scheduler(workers, lanes=lanes).run(entries("a", device="cuda:1"))
    assert record.lane == "cuda:1"


def test_what_is_measured_in_turns_stays_on_one_lane() -> None:
    """Else a difference between two devices would look like one between the versions."""
    lanes = (Lane(device="cuda:0", cores=(0,)), Lane(device="cuda:1", cores=(1,)))
    cases = [msgspec.structs.replace(CASE, model=model, device="cuda") for model in "ab"]
    plan = tuple(
        PlannedCase(case=case, spec=SPEC, environment=name) for case in cases for name in ("base", "candidate")
    )
    workers = FakeWorkers({name: [GOOD] * 2 for name in "ab"})
    records = list(scheduler(workers, jobs=4, lanes=lanes).run(plan))
    used = {model: {record.lane for record in records if record.case.model == model} for model in "ab"}
    assert len(records) == 4
    assert {frozenset(one) for one in used.values()} == {frozenset({"cuda:0"}), frozenset({"cuda:1"})}


def test_device_memory_is_promised_only_once() -> None:
    lane = Lane(device="cuda:0", memory_bytes=100)
    workers = FakeWorkers({"a": [GOOD], "b": [GOOD], "c": [GOOD]})
    plan = entries("a", "b", "c", device="cuda")
    under_test = scheduler(workers, jobs=3, lanes=(lane,))
    learned = {"a": 40.0, "b": 40.0, "c": 20.0}
    under_test.room.learned_bytes = {kind_of(one.case): learned[one.case.model] for one in plan}
    list(under_test.run(plan))
    started = {name: when for when, name in workers.did("start")}
    assert started["a@cuda:0"] == started["c@cuda:0"] == 0  # 1.2 * (40 + 20) of 90
    assert started["b@cuda:0"] > 0


def checks_of(memory_gib: float, **needs_gib: float) -> tuple[FakeWorkers, list[Record]]:
    """Cases with a check that run on one device. They need so much before it, and twice as much in it."""
    gib = 2**30
    workers = FakeWorkers({name: [CHECKED] for name in needs_gib})
    lane = Lane(device="cuda:0", memory_bytes=round(memory_gib * gib / 0.9))
    under_test = scheduler(workers, jobs=len(needs_gib), lanes=(lane,))
    plan = entries(*needs_gib, device="cuda")
    under_test.room.learned_bytes = {kind_of(one.case): needs_gib[one.case.model] * gib / 1.2 for one in plan}
    return workers, list(under_test.run(plan))


def test_a_check_is_promised_twice_the_device_memory_when_it_begins() -> None:
    for memory_gib, together in ((210, True), (110, False)):
        workers, records = checks_of(memory_gib, a=50, b=50)
        assert workers.most_alive == 2, "they prepare together"
        (first_s, _), (second_s, _) = workers.did("check")
        assert (second_s - first_s < 20) is together
        assert len(records) == 2


def test_a_check_alone_begins_whatever_it_needs() -> None:
    workers, records = checks_of(100, a=90)
    assert len(workers.did("check")) == len(records) == 1


def test_no_case_starts_where_a_check_that_waits_will_need_the_memory() -> None:
    workers, records = checks_of(110, a=50, b=50, c=20)
    first, *_ = workers.did("check")
    started = {name: when for when, name in workers.did("start")}
    ended = {name: when for when, name in workers.did("kill")}
    assert started["c@cuda:0"] >= ended[first[1]]
    assert len(records) == 3


@pytest.mark.parametrize("seed", range(10))
def test_checks_and_steps_together_never_need_more_than_the_device_has(seed: int) -> None:
    draw = random.Random(seed)
    needs_gib = {f"m{number}": draw.uniform(2, 30) for number in range(20)}
    workers, records = checks_of(75, **needs_gib)
    assert outcomes(records) == dict.fromkeys(needs_gib, measured())
    changes = [
        (when, change * needs_gib[name.partition("@")[0]])
        for what, change in (("start", 1), ("hold", -1), ("check", 2), ("kill", -2))  # a check needs twice as much
        for when, name in workers.did(what)
    ]
    used_gib = accumulate(change for _, change in sorted(changes))
    assert max(used_gib) <= 75


def test_a_check_that_hangs_is_ended_at_its_limit() -> None:
    workers = FakeWorkers({"a": [[*CHECKED[:7], (1e6, measured())]]})
    (record,) = scheduler(workers).run(entries("a"))
    assert isinstance(record.outcome, Failed)
    assert (record.outcome.kind, record.outcome.stage) == (FailureKind.TIMEOUT, Stage.CHECK)


@pytest.mark.parametrize(
    ("quarters_of_gib", "scope", "fit"),
    [
        (8, CompileScope.NETWORK, False),  # 96 GiB of results each, of 100
        (3, CompileScope.NETWORK, True),  # 36 GiB
        (3, CompileScope.STEP, False),  # 60 GiB, with what optimizers keep
    ],
)
def test_checks_of_training_share_the_memory_of_the_host(
    quarters_of_gib: int,
    scope: CompileScope,
    fit: bool,  # noqa: FBT001
) -> None:
    gib = 2**30
    large = msgspec.structs.replace(SPEC, parameters=quarters_of_gib * gib // 4)
    changes = {"mode": Mode.TRAIN, "compile_scope": scope}
    plan = tuple(
        msgspec.structs.replace(one, spec=large, case=msgspec.structs.replace(one.case, **changes))
        for one in entries("a", "b", device="cuda")
    )
    workers = FakeWorkers({"a": [CHECKED], "b": [CHECKED]})
    lane = Lane(device="cuda:0", memory_bytes=1000 * gib)
    assert len(list(scheduler(workers, jobs=2, lanes=(lane,)).run(plan))) == 2
    (first_s, _), (second_s, _) = workers.did("check")
    assert (second_s - first_s < 20) is fit


def test_what_a_case_took_is_learned_for_the_next_of_its_kind() -> None:
    took = measured(variants={"eager": variant_result(memory=Memory(device_process_bytes=70))})
    script: Script = [(1, Stage.WAIT), (0, Stage.MEASURE), (1, took), (0, Exited(0))]
    workers = FakeWorkers({"a": [script]})
    under_test = scheduler(workers, lanes=(Lane(device="cuda:0", memory_bytes=100),))
    (planned,) = entries("a", device="cuda")
    list(under_test.run([planned]))
    assert under_test.room.learned_bytes == {kind_of(planned.case): 70.0}
    for changes in ({"device": "cpu"}, {"batch_size": 99}, {"precision": Precision.FP64}):
        assert kind_of(msgspec.structs.replace(planned.case, **changes)) not in under_test.room.learned_bytes


def test_many_cores_do_not_make_cases_of_unknown_size_small() -> None:
    """A host with 256 cores has 256 jobs. Its 80 GiB of device memory are no more than another's."""
    gib = 2**30
    (planned,) = entries("a", device="cuda")
    lane = Lane(device="cuda:0", memory_bytes=80 * gib)
    needs = [scheduler(FakeWorkers({}), jobs=jobs).room.device_bytes_of(planned, lane) for jobs in (16, 64, 256)]
    assert needs[0] == needs[1] == needs[2] == 0.9 * 80 * gib / 16


def test_a_host_short_of_memory_starts_one_at_a_time() -> None:
    workers = FakeWorkers({name: [GOOD] for name in "abc"})
    workers.available_bytes = 2**30
    assert len(list(scheduler(workers).run(entries(*"abc")))) == 3
    assert workers.most_alive == 1


def test_leaving_early_kills_all() -> None:
    workers = FakeWorkers({name: [GOOD] for name in "abc"})
    run = scheduler(workers).run(entries(*"abc"))
    next(run)
    run.close()
    assert workers.left == {}


def test_what_takes_long_is_started_first_and_one_at_a_time_keeps_the_plans_order() -> None:
    def plan_of_four() -> tuple[PlannedCase, ...]:
        cases = [
            msgspec.structs.replace(CASE, model="a"),
            msgspec.structs.replace(CASE, model="b", mode=Mode.TRAIN),
            msgspec.structs.replace(CASE, model="c", backend=INDUCTOR),
            msgspec.structs.replace(CASE, model="d", backend=INDUCTOR, mode=Mode.TRAIN),
        ]
        return tuple(PlannedCase(case=case, spec=SPEC) for case in cases)

    for jobs, order in ((2, "dcba"), (1, "abcd")):
        workers = FakeWorkers({name: [GOOD] for name in "abcd"})
        list(scheduler(workers, jobs=jobs).run(plan_of_four()))
        assert [name for _, name in workers.did("start")] == [f"{name}@cpu" for name in order]


@pytest.mark.parametrize(("jobs", "order"), [(1, ["a", "b", "a", "b"]), (2, ["b", "a", "b", "a"])])
def test_repeats_of_a_case_are_spread_over_the_run(jobs: int, order: list[str]) -> None:
    cases = [
        msgspec.structs.replace(CASE, model=model, mode=mode, repeat=repeat)
        for model, mode in (("a", Mode.EVAL), ("b", Mode.TRAIN))
        for repeat in range(2)
    ]
    workers = FakeWorkers({"a": [GOOD, GOOD], "b": [GOOD, GOOD]})
    list(scheduler(workers, jobs=jobs).run(tuple(PlannedCase(case=case, spec=SPEC) for case in cases)))
    assert [name for _, name in workers.did("start")] == [f"{name}@cpu" for name in order]


def test_a_repeat_begins_when_the_one_before_has_ended() -> None:
    """Its processes come from a server of their own, which replaces the one before."""
    cases = [msgspec.structs.replace(CASE, model=model, repeat=repeat) for repeat in range(2) for model in "ab"]
    slow: Script = [(50, Stage.BUILD), *GOOD[1:]]
    workers = FakeWorkers({"a": [GOOD, GOOD], "b": [slow, slow]})
    list(scheduler(workers, jobs=4).run(tuple(PlannedCase(case=case, spec=SPEC) for case in cases)))
    assert workers.most_alive == 2
    (first, first_too, second, second_too) = [when for when, _ in workers.did("start")]
    assert first == first_too == 0
    assert second == second_too > 50


def test_a_lane_has_no_more_workers_than_it_allows() -> None:
    workers = FakeWorkers({name: [GOOD] for name in "abc"})
    lanes = (Lane(device="cpu", jobs=1), Lane(device="cuda:0", cores=(0,)))
    plan = (*entries("a", "b"), *entries("c", device="cuda"))
    list(scheduler(workers, jobs=3, lanes=lanes).run(plan))
    started = {name: when for when, name in workers.did("start")}
    assert started["a@cpu"] == started["c@cuda:0"] == 0
    assert started["b@cpu"] > 0


def test_a_device_is_promised_what_metadata_declares_and_what_the_weights_need_at_least() -> None:
    gib = 2**30
    lane = Lane(device="cuda:0", memory_bytes=100 * gib)
    declared = msgspec.structs.replace(SPEC, device_memory_gib={Mode.EVAL: 80})
    large = msgspec.structs.replace(SPEC, parameters=20 * gib)
    for spec in (declared, large):
        workers = FakeWorkers({"a": [GOOD], "b": [GOOD]})
        plan = tuple(msgspec.structs.replace(entry, spec=spec) for entry in entries("a", "b", device="cuda"))
        list(scheduler(workers, jobs=8, lanes=(lane,)).run(plan))
        assert workers.most_alive == 1
    workers = FakeWorkers({"a": [GOOD], "b": [GOOD]})
    list(scheduler(workers, jobs=8, lanes=(lane,)).run(entries("a", "b", device="cuda")))
    assert workers.most_alive == 2


def test_a_case_that_declares_no_device_memory_is_promised_6_gib_at_most() -> None:
    lane = Lane(device="cuda:0", memory_bytes=141 * 2**30)  # workers are promised 126.9 GiB
    large = msgspec.structs.replace(SPEC, device_memory_gib={Mode.EVAL: 100})
    first, *others = entries(*"abcdefgh", device="cuda")
    workers = FakeWorkers({name: [GOOD] for name in "abcdefgh"})
    list(scheduler(workers, jobs=8, lanes=(lane,)).run((msgspec.structs.replace(first, spec=large), *others)))
    assert workers.most_alive == 1 + 4


def test_host_memory_is_promised_only_once() -> None:
    gib = 2**30
    took = measured(variants={"eager": variant_result(memory=Memory(host_uss_bytes=30 * gib))})
    script: Script = [(1, Stage.WAIT), (0, Stage.MEASURE), (1, took), (0, Exited(0))]
    workers = FakeWorkers({"a": [script], "b": [GOOD], "c": [GOOD]})
    workers.available_bytes = 60 * gib
    under_test = scheduler(workers, jobs=2)
    plan = entries("b", "a")
    list(under_test.run(plan))
    assert under_test.room.learned_host_bytes[kind_of(plan[1].case)] == 30 * gib
    workers.most_alive = 0
    list(under_test.run(entries("a", "a", "c")))
    assert workers.most_alive == 2  # 1.2 * 30 and a small one fit in 58, two of 36 do not
    starts = [when for when, name in workers.did("start") if name == "a@cpu"]
    assert starts[-1] > starts[-2]


def test_cases_may_come_while_it_runs_until_no_more_will() -> None:
    workers = FakeWorkers({name: [GOOD] for name in "abc"})
    feed = [entries("a"), (), entries("b"), (), (), entries("c")]

    def more() -> Plan | None:
        return feed.pop(0) if feed else None

    records = list(scheduler(workers, jobs=2, more=more).run(()))
    assert sorted(record.case.model for record in records) == ["a", "b", "c"]
    assert all(record.outcome == measured() for record in records)


def test_the_lane_of_a_record_names_its_host() -> None:
    workers = FakeWorkers({"a": [GOOD]})
    (record,) = scheduler(workers, lanes=(Lane(device="cpu", host="node7"),)).run(entries("a"))
    assert record.lane == "node7/cpu"


def in_turns(*models: str, count: int = 2) -> Plan:
    turns = [Turn(role=f"role {number}", function="m:f") for number in range(count)]
    return tuple(msgspec.structs.replace(one, turn=turn) for one in entries(*models) for turn in turns)


def test_turns_of_a_case_run_in_their_order_on_one_lane() -> None:
    long: Script = [(50, Took(result={})), (0, Exited(0))]
    short: Script = [(1, Took(result={})), (0, Exited(0))]
    workers = FakeWorkers({"a": [short, long], "b": [long, short], "c": [short]})
    lanes = tuple(Lane(device="cpu", cores=(core,), jobs=1) for core in range(2))
    started: list[tuple[str, str]] = []
    under_test = scheduler(
        workers, jobs=2, lanes=lanes, on_start=lambda one: started.append((one.case.model, one.key[1]))
    )
    planned = [one for one, _ in under_test.run_planned(in_turns("a", "b", "c"))]
    assert {one.case for one in planned} == set(under_test.lanes_of_turns)
    assert [one[0] for one in started[:3]] == ["a", "b", "a"]
    for model in "abc":
        assert [role for name, role in started if name == model] == ["role 0", "role 1"]
    assert workers.most_alive == 2


def test_a_turn_has_one_limit_for_all_its_stages() -> None:
    patient: Script = [(150, Stage.COMPILE), (30, Took(result={})), (0, Exited(0))]
    endless: Script = [(150, Stage.COMPILE), (150, Took(result={}))]
    first, second = scheduler(FakeWorkers({"a": [patient, endless]}), jobs=1).run(in_turns("a"))
    assert first.outcome == Took(result={})
    assert isinstance(second.outcome, Failed)
    assert (second.outcome.kind, second.outcome.stage) == (FailureKind.TIMEOUT, Stage.COMPILE)
    assert second.outcome.message.startswith("the process took longer than 190 s")


def test_cases_that_lose_their_server_run_once_more_alone() -> None:
    """The case that ends the server again fails, and the other case is measured."""
    lost: Script = [(1, Stage.BUILD), (5, Exited(-9, with_server=True))]
    workers = FakeWorkers({"ends it": [lost, lost], "beside": [lost, GOOD]})
    found = outcomes(list(scheduler(workers).run(entries("ends it", "beside"))))
    assert found["beside"] == measured()
    assert found["ends it"].kind is FailureKind.CRASHED
    assert [name for _, name in workers.did("start")].count("ends it@cpu") == 2


def test_a_case_that_has_its_outcome_when_the_server_ends_does_not_run_again() -> None:
    script: Script = [*GOOD[:-1], (1, Exited(-9, with_server=True))]
    workers = FakeWorkers({"a": [script]})
    assert outcomes(list(scheduler(workers).run(entries("a")))) == {"a": measured()}
    assert len(workers.did("start")) == 1
