"""Scheduling with fake workers on a fake clock: windows, stopping, limits, retries, and what a death is called."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import pytest

from examples import CASE, INDUCTOR, SPEC, measured, variant_result
from torchzoo.case import Mode
from torchzoo.environment import Accelerator, physical_cores
from torchzoo.record import Failed, FailureKind, Measured, Memory, Record, Skipped
from torchzoo.run.lanes import Lane, make_lanes, split_cores
from torchzoo.run.plan import PlannedCase
from torchzoo.run.scheduler import Scheduler, died
from torchzoo.run.windows import ANSWER_TO_OPENING_S, PATIENCE_S
from torchzoo.run.workers import Exited, Garbled, Message
from torchzoo.settings import Stage, StageLimits

LANE = Lane(device="cpu")
LIMITS = StageLimits(build_s=60.0, compile_s=100.0, measure_s=30.0)
OOM = Failed(kind=FailureKind.OOM_DEVICE, stage=Stage.BUILD, message="out of memory")

Script = list[tuple[float, Message]]
GOOD: Script = [
    (1, Stage.BUILD),
    (10, Stage.COMPILE),
    (20, Stage.WAIT),
    (0, Stage.MEASURE),
    (5, measured()),
    (1, Exited(0)),
]


class FakeWorkers:
    """Workers that send scripted messages, each after its seconds of running; stopped ones make no headway."""

    def __init__(self, scripts: dict[str, list[Script]]) -> None:
        self.scripts = scripts
        self.now_s = 0.0
        self.left: dict[int, Script] = {}
        self.names: dict[int, str] = {}
        self.paused: set[int] = set()
        self.waiting: set[int] = set()
        self.journal: list[tuple[float, str, str]] = []
        self.measuring: set[int] = set()
        self.most_alive = 0
        self.available_bytes = 100 * 2**30

    def say(self, what: str, ticket: int) -> None:
        self.journal.append((self.now_s, what, self.names[ticket]))

    def start(self, ticket: int, planned: PlannedCase, lane: Lane, log: Path) -> None:
        assert not self.measuring, "nothing is started while a window is open"
        self.names[ticket] = f"{planned.case.model}@{lane.device}"
        scripts = self.scripts[planned.case.model]
        self.left[ticket] = list(scripts.pop(0) if len(scripts) > 1 else scripts[0])
        self.say("start", ticket)
        self.most_alive = max(self.most_alive, len(self.left))

    def wait(self, timeout_s: float) -> list[tuple[int, Message]]:
        moving = {t: s for t, s in self.left.items() if s and t not in self.paused | self.waiting}
        until_s = min([s[0][0] for s in moving.values()], default=float("inf"))
        spent_s = min(until_s, timeout_s)
        assert spent_s < float("inf"), "nobody moves and nobody will: a deadlock"
        self.now_s += spent_s
        messages = []
        for ticket, script in moving.items():
            after_s, message = script[0]
            if after_s > spent_s:
                script[0] = (after_s - spent_s, message)
                continue
            script.pop(0)
            messages.append((ticket, message))
            if message is Stage.WAIT:
                self.waiting.add(ticket)
            if message is Stage.MEASURE:
                self.measuring.add(ticket)
                others = set(self.left) - self.paused - {ticket}
                self.say(f"measure beside {sorted(self.names[t] for t in others)}", ticket)
            elif not isinstance(message, Stage):
                self.measuring.discard(ticket)
        return messages

    def open_window(self, ticket: int) -> None:
        self.waiting.discard(ticket)

    def pause(self, ticket: int) -> None:
        self.paused.add(ticket)

    def resume(self, ticket: int) -> None:
        self.paused.discard(ticket)

    def kill(self, ticket: int) -> None:
        self.say("kill", ticket)
        del self.left[ticket]
        self.paused.discard(ticket)
        self.waiting.discard(ticket)
        self.measuring.discard(ticket)

    def host_available_bytes(self) -> int:
        return self.available_bytes

    def did(self, what: str) -> list[tuple[float, str]]:
        return [(when, name) for when, done, name in self.journal if done.startswith(what)]


def entries(*models: str, device: str = "cpu") -> tuple[PlannedCase, ...]:
    return tuple(
        PlannedCase(case=msgspec.structs.replace(CASE, model=model, device=device), spec=SPEC) for model in models
    )


def scheduler(workers: FakeWorkers, jobs: int = 3, lanes: tuple[Lane, ...] = (LANE,), **options: Any) -> Scheduler:
    def log_path(planned: PlannedCase) -> Path:
        return Path(f"{planned.case.model}.log")

    return Scheduler(
        workers, lanes, jobs=jobs, limits=LIMITS, log_path=log_path, now_s=lambda: workers.now_s, **options
    )


def outcomes(records: list[Record]) -> dict[str, Any]:
    return {record.case.model: record.outcome for record in records}


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
    assert workers.now_s == pytest.approx(1 + limit_s)
    assert workers.did("kill") == [(workers.now_s, "hangs@cpu")]


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


def test_a_worker_that_has_answered_but_does_not_end_is_killed_and_its_answer_kept() -> None:
    workers = FakeWorkers({"lingers": [[(1, Stage.WAIT), (0, Stage.MEASURE), (1, measured())]], "good": [GOOD]})
    found = outcomes(list(scheduler(workers).run(entries("lingers", "good"))))
    assert found == {"lingers": measured(), "good": measured()}


def test_out_of_device_memory_beside_siblings_is_tried_once_more_alone() -> None:
    oom: Script = [(5, OOM), (0, Exited(0))]
    workers = FakeWorkers({"big": [oom, GOOD], "a": [GOOD], "b": [GOOD]})
    found = outcomes(list(scheduler(workers).run(entries("a", "big", "b"))))
    assert found == {"big": measured(), "a": measured(), "b": measured()}
    retried_s = workers.did("start")[-1][0]
    assert workers.did("start")[-1][1] == "big@cpu"
    assert retried_s >= max(when for when, name in workers.did("kill") if name != "big@cpu")


def test_out_of_device_memory_alone_or_twice_is_final() -> None:
    oom: Script = [(5, OOM), (0, Exited(0))]
    alone = FakeWorkers({"big": [oom]})
    assert outcomes(list(scheduler(alone).run(entries("big")))) == {"big": OOM}
    assert len(alone.did("start")) == 1
    twice = FakeWorkers({"big": [oom], "a": [GOOD]})
    assert outcomes(list(scheduler(twice).run(entries("big", "a"))))["big"] == OOM
    assert len(twice.did("start")) == 3


def test_lanes_with_their_own_cores_measure_at_the_same_time() -> None:
    lanes = (Lane(device="cuda:0", cores=(0, 1)), Lane(device="cuda:1", cores=(2, 3)))
    workers = FakeWorkers({name: [GOOD] for name in "abcd"})
    workers.start = lambda *a: FakeWorkers.start(workers, *a) if not workers.measuring else None  # type: ignore[method-assign]
    records = list(scheduler(workers, jobs=4, lanes=lanes).run(entries(*"abcd", device="cuda")))
    assert sorted(record.lane for record in records if record.lane) == ["cuda:0", "cuda:0", "cuda:1", "cuda:1"]
    assert workers.now_s == pytest.approx(31 + 2 * 5 + 1)


def test_a_case_that_names_a_device_runs_there() -> None:
    lanes = (Lane(device="cuda:0", cores=(0,)), Lane(device="cuda:1", cores=(1,)))
    workers = FakeWorkers({"a": [GOOD]})
    (record,) = scheduler(workers, lanes=lanes).run(entries("a", device="cuda:1"))
    assert record.lane == "cuda:1"


def test_device_memory_is_promised_only_once() -> None:
    lane = Lane(device="cuda:0", memory_bytes=100)
    workers = FakeWorkers({"a": [GOOD], "b": [GOOD], "c": [GOOD]})
    plan = entries("a", "b", "c", device="cuda")
    under_test = scheduler(workers, jobs=3, lanes=(lane,))
    under_test.learned_bytes = {("a", "eval"): 40.0, ("b", "eval"): 40.0, ("c", "eval"): 20.0}
    list(under_test.run(plan))
    started = {name: when for when, name in workers.did("start")}
    assert started["a@cuda:0"] == started["c@cuda:0"] == 0  # 1.2 * (40 + 20) of 90
    assert started["b@cuda:0"] > 0


def test_what_a_case_took_is_learned_for_the_next_of_its_kind() -> None:
    took = measured(variants={"eager": variant_result(memory=Memory(device_process_bytes=70))})
    script: Script = [(1, Stage.WAIT), (0, Stage.MEASURE), (1, took), (0, Exited(0))]
    workers = FakeWorkers({"a": [script]})
    under_test = scheduler(workers, lanes=(Lane(device="cuda:0", memory_bytes=100),))
    list(under_test.run(entries("a", device="cuda")))
    assert under_test.learned_bytes == {("a", "eval"): 70.0}


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


def test_how_long_a_worker_was_stopped_is_in_its_record() -> None:
    slow: Script = [(1, Stage.COMPILE), (90, Stage.WAIT), (0, Stage.MEASURE), (1, measured()), (0, Exited(0))]
    workers = FakeWorkers({"slow": [slow], "a": [GOOD]})
    stopped_s = {r.case.model: r.paused_s for r in scheduler(workers).run(entries("slow", "a"))}
    assert stopped_s == {"slow": pytest.approx(5.0), "a": 0.0}


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
    list(under_test.run(entries("b", "a")))
    assert under_test.learned_host_bytes[("a", "eval")] == 30 * gib
    workers.most_alive = 0
    list(under_test.run(entries("a", "a", "c")))
    assert workers.most_alive == 2  # 1.2 * 30 and a small one fit in 58, two of 36 do not
    starts = [when for when, name in workers.did("start") if name == "a@cpu"]
    assert starts[-1] > starts[-2]


def singles(count: int) -> list[tuple[int, ...]]:
    """So many physical cores of one logical core each."""
    return [(core,) for core in range(count)]


def test_a_bare_accelerator_is_spread_over_the_devices_asked_for() -> None:
    both = [Accelerator(memory_bytes=80), Accelerator(memory_bytes=90)]
    lanes = make_lanes(["cuda"], (0, 1), both, physical=singles(6))
    assert [(lane.device, lane.memory_bytes, lane.cores) for lane in lanes] == [
        ("cuda:0", 80, (1, 2)),
        ("cuda:1", 90, (3, 4)),
    ]
    (one,) = make_lanes(["cuda"], None, both, physical=singles(4))
    assert (one.device, one.cores) == ("cuda:0", (1, 2, 3))  # core 0 is the runner's
    cpu, gpu = make_lanes(["cpu", "cuda:1"], None, both, physical=singles(4), cpu_jobs=2)
    assert cpu.shares_cores(gpu)
    assert (cpu.jobs, gpu.memory_bytes) == (2, 90)


def test_no_two_lanes_and_not_the_runner_share_a_physical_core() -> None:
    physical = [(core, core + 8) for core in range(8)]
    runners, for_lanes = split_cores(physical)
    assert runners == (0, 8)
    lanes = make_lanes(["cuda"], (0, 1, 2), [], physical=physical)
    assert [lane.cores for lane in lanes] == [(1, 2, 9, 10), (3, 4, 11, 12), (5, 6, 13, 14)]
    assert {core for lane in lanes for core in lane.cores or ()} <= {core for pair in for_lanes for core in pair}
    assert split_cores(singles(3)) == (None, tuple(singles(3)))


def test_the_system_tells_which_hyperthreads_share_a_core(tmp_path: Path) -> None:
    for core in range(4):
        folder = tmp_path / f"cpu{core}" / "topology"
        folder.mkdir(parents=True)
        (folder / "thread_siblings_list").write_text(f"{core % 2},{core % 2 + 2}\n")
    assert physical_cores(range(4), tmp_path) == ((0, 2), (1, 3))
    assert physical_cores((1, 2), tmp_path) == ((1,), (2,))
    assert physical_cores((7, 8), tmp_path) == ((7,), (8,))  # not told


@pytest.mark.parametrize(
    ("near", "cores"),
    [
        ([(5, 6, 7, 8), (1, 2, 3, 4)], [(5, 6, 7, 8), (1, 2, 3, 4)]),  # a node each
        ([(1, 2, 3, 4), (1, 2, 3, 4)], [(1, 2), (3, 4)]),  # one node for both
        ([None, None], [(1, 2, 3, 4), (5, 6, 7, 8)]),  # not known
        ([(1, 2, 3, 4, 5), (5, 6, 7, 8)], [(1, 2, 3, 4), (5, 6, 7, 8)]),  # nodes that overlap say nothing
        ([(9, 10), (0, 1)], [(1, 2, 3, 4), (5, 6, 7, 8)]),  # a node this process may not use
    ],
)
def test_devices_get_the_cores_of_their_numa_node(near: list[Any], cores: list[tuple[int, ...]]) -> None:
    lanes = make_lanes(["cuda"], (0, 1), [Accelerator(near_cores=one) for one in near], physical=singles(9))
    assert [lane.cores for lane in lanes] == cores
    are_apart = near == [(5, 6, 7, 8), (1, 2, 3, 4)]
    assert [lane.near_cores for lane in lanes] == (cores if are_apart else [None, None])


def test_fewer_cores_than_devices_are_shared() -> None:
    lanes = make_lanes(["cuda"], (0, 1), [], physical=singles(1))
    assert [lane.cores for lane in lanes] == [None, None]
    assert lanes[0].shares_cores(lanes[1])


def two_lanes() -> tuple[Lane, Lane]:
    return Lane(device="cuda:0", cores=(0, 1)), Lane(device="cuda:1", cores=(2, 3))


def test_nothing_prepares_on_any_lane_while_a_window_is_open() -> None:
    # b compiles for 60 s on the other lane. a is ready after 31 s and waits for it as long as patience lasts.
    long: Script = [(1, Stage.COMPILE), (60, Stage.WAIT), (0, Stage.MEASURE), (5, measured()), (1, Exited(0))]
    workers = FakeWorkers({"a": [GOOD], "b": [long]})
    list(scheduler(workers, jobs=2, lanes=two_lanes()).run(entries("a", "b", device="cuda")))
    assert [beside for _, beside, _ in workers.journal if beside.startswith("measure")] == ["measure beside []"] * 2
    ((a_s, _), (b_s, _)) = workers.did("measure")
    assert a_s == pytest.approx(31 + PATIENCE_S)
    assert b_s == pytest.approx(61 + 5)  # it stood still while a was measured


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


def test_who_waits_to_be_measured_takes_no_job_but_there_is_a_limit() -> None:
    slow: Script = [(500, Stage.WAIT), (0, Stage.MEASURE), (5, measured()), (1, Exited(0))]
    quick: Script = [(1, Stage.WAIT), (0, Stage.MEASURE), (5, measured()), (1, Exited(0))]
    workers = FakeWorkers({"slow": [slow], **{name: [quick] for name in "abcdef"}})
    limits = msgspec.structs.replace(LIMITS, build_s=1000)
    under_test = scheduler(workers, jobs=2, lanes=two_lanes())
    under_test.limits = limits
    assert len(list(under_test.run(entries("slow", *"abcdef", device="cuda")))) == 7
    assert 2 < workers.most_alive <= 4


def test_a_worker_that_sends_garbage_fails_in_the_stage_it_was_in_and_the_others_go_on() -> None:
    garbled: Script = [(1, Stage.BUILD), (1, Garbled("it sent what is no message"))]
    workers = FakeWorkers({"a": [garbled], "b": [GOOD]})
    found = outcomes(list(scheduler(workers).run(entries("a", "b"))))
    assert (found["a"].kind, found["a"].stage) == (FailureKind.CRASHED, Stage.BUILD)
    assert "no message" in found["a"].message
    assert found["b"] == measured()


def test_a_worker_that_does_not_begin_when_its_window_opens_is_late() -> None:
    silent: Script = [(1, Stage.BUILD), (1, Stage.WAIT)]
    workers = FakeWorkers({"a": [silent], "b": [GOOD]})
    records = list(scheduler(workers).run(entries("a", "b")))
    found = outcomes(records)
    assert (found["a"].kind, found["a"].stage) == (FailureKind.TIMEOUT, Stage.WAIT)
    assert found["b"] == measured()
    assert workers.did("kill")[0] == (2 + ANSWER_TO_OPENING_S, "a@cpu")


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


def test_of_a_large_log_only_the_end_is_read(tmp_path: Path) -> None:
    log = tmp_path / "log"
    with log.open("wb") as file:
        file.seek(10 * 2**30)  # a hole: it takes no space
        file.write("\nSegmentation fault é".encode())
    failed = died(1, Stage.BUILD, log)
    assert failed.traceback is not None
    assert failed.traceback.endswith("Segmentation fault é")
    assert len(failed.traceback) <= 4000


def test_agents_measure_a_case_in_the_order_in_which_it_was_started_whoever_is_ready_first() -> None:
    def after(seconds: float) -> Script:
        return [(seconds, Stage.WAIT), (0, Stage.MEASURE), (5, measured()), (1, Exited(0))]

    (planned,) = entries("a")
    plan = tuple(msgspec.structs.replace(planned, agent=agent) for agent in ("base", "candidate"))
    workers = FakeWorkers({"a": [after(20), after(1)], "b": [after(10)]})
    order = [(one.agent, one.case.model) for one, _ in scheduler(workers).run_planned((*plan, *entries("b")))]
    assert order == [("", "b"), ("base", "a"), ("candidate", "a")]


def test_a_case_whose_first_agent_fails_is_measured_by_the_other() -> None:
    (planned,) = entries("a")
    plan = tuple(msgspec.structs.replace(planned, agent=agent) for agent in ("base", "candidate"))
    crash: Script = [(20, Exited(7))]
    workers = FakeWorkers({"a": [crash, GOOD]})
    found = [(one.agent, type(record.outcome)) for one, record in scheduler(workers).run_planned(plan)]
    assert found == [("base", Failed), ("candidate", Measured)]
