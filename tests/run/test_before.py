"""The processes that come before the worker of a case: `--memory-alone` and `--cache warm`."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest
from fake_workers import GOOD, LANE, LIMITS, FakeWorkers, Script, entries, scheduler

from examples import CASE, SPEC, by_itself, compared
from torchzoo.case import Backend
from torchzoo.record import Alone, Failed, FailureKind, Measured, Record, Skipped, Took
from torchzoo.run.plan import Before, Plan, PlannedCase, processes_of, why_never_alone
from torchzoo.run.pool import Pool, PoolRun
from torchzoo.run.scheduler import STACKS_S
from torchzoo.run.workers import Exited
from torchzoo.settings import CacheMode, Pass, Settings, Stage

ALONE = by_itself()
MEASURED = compared()
READS: Script = [(1, Stage.ALONE), (10, Took(result=msgspec.to_builtins(ALONE))), (1, Exited(0))]
COMPILES: Script = [(1, Stage.BUILD), (10, Stage.COMPILE), (9, Took(result={})), (1, Exited(0))]
MEASURES: Script = [*GOOD[:4], (5, MEASURED), (1, Exited(0))]
BOTH = Settings(passes=frozenset({Pass.MEMORY_ALONE}), cache=CacheMode.WARM)
OOM = Failed(kind=FailureKind.OOM_DEVICE, stage=Stage.ALONE, message="out of memory")
FAILS: Script = [(1, Stage.ALONE), (5, OOM), (0, Exited(0))]


def plan(*models: str, backend: str = "inductor") -> Plan:
    return tuple(
        msgspec.structs.replace(one, case=msgspec.structs.replace(one.case, backend=Backend(backend)))
        for one in entries(*models)
    )


def candidate(record: Record) -> tuple[Alone | None, Skipped | Failed | None]:
    assert isinstance(record.outcome, Measured)
    variant = record.outcome.variants["candidate"]
    return variant.alone, variant.why_not_alone


def test_they_run_one_after_the_other_and_the_case_has_one_record() -> None:
    workers = FakeWorkers({"a": [READS, MEASURES], "b": [FAILS, COMPILES, MEASURES]})
    records = list(scheduler(workers, jobs=2, settings=BOTH).run(plan("a", "b")))
    assert {record.case.model: candidate(record) for record in records} == {"a": (ALONE, None), "b": (None, OOM)}
    for name, count in (("a@cpu", 2), ("b@cpu", 3)):
        began = [when for when, started in workers.did("start") if started == name]
        ended = [when for when, killed in workers.did("kill") if killed == name]
        assert len(began) == count
        assert [start >= end for start, end in zip(began[1:], ended, strict=False)] == [True] * (count - 1)


def test_eager_and_what_can_not_run_have_none() -> None:
    (eager,), (one,) = plan("a", backend="eager"), plan("a")
    assert processes_of(eager, BOTH) == (eager,)
    can_not = msgspec.structs.replace(one, resolved=Skipped(reason="no"))
    assert processes_of(can_not, BOTH) == (can_not,)
    assert processes_of(one, Settings()) == (one,)
    assert [process.before for process in processes_of(one, BOTH)] == [Before.ALONE, Before.PRIME, None]


def test_only_what_compiles_in_its_first_step_can_be_alone() -> None:
    names = ("inductor", "aot_eager", "eager", "torchscript", "paper_optimizations/zero_grad")
    cases = [msgspec.structs.replace(CASE, backend=Backend(name)) for name in names]
    assert [why_never_alone(case) is None for case in cases] == [True, True, False, False, False]
    assert why_never_alone(msgspec.structs.replace(CASE, world=2)) == "a case of several ranks has none"
    workers = FakeWorkers({"a": [MEASURES]})
    settings = msgspec.structs.replace(BOTH, cache=CacheMode.COLD)
    (record,) = scheduler(workers, settings=settings).run(plan("a", backend="torchscript"))
    _, why = candidate(record)
    assert isinstance(why, Skipped)
    assert "eager step comes before" in why.reason


@pytest.mark.parametrize(
    ("script", "kind", "says"),
    [
        (FAILS, FailureKind.OOM_DEVICE, "out of memory"),
        ([(1, Stage.ALONE), (5, Exited(-9))], FailureKind.CRASHED, "the process was ended by SIGKILL in alone"),
        ([(1, Stage.ALONE), (5, Exited(3))], FailureKind.CRASHED, "exited with status 3 in alone without a result"),
        ([(1, Stage.ALONE), (9999, Exited(0))], FailureKind.TIMEOUT, "alone took longer than 900 s and was killed"),
    ],
)
def test_where_one_fails_the_reason_is_told_and_the_case_is_measured(
    script: Script, kind: FailureKind, says: str
) -> None:
    workers = FakeWorkers({"a": [script, COMPILES, MEASURES], "b": [READS, MEASURES]})
    records = {record.case.model: record for record in scheduler(workers, settings=BOTH).run(plan("a", "b"))}
    alone, why = candidate(records["a"])
    assert alone is None
    assert isinstance(why, Failed)
    assert (why.kind, why.stage) == (kind, Stage.ALONE)
    assert says in why.message
    assert candidate(records["b"]) == (ALONE, None)
    if kind is FailureKind.TIMEOUT:
        killed = next(when for when, name in workers.did("kill") if name == "a@cpu")
        assert killed == pytest.approx(1 + LIMITS.alone_s + STACKS_S + 5)  # `b` was measured for 5 s


def test_what_fails_while_caches_are_filled_fails_again_and_is_told_then() -> None:
    failed = Failed(kind=FailureKind.ERROR, stage=Stage.COMPILE, message="no")
    fails: Script = [(1, Stage.COMPILE), (1, failed), (0, Exited(0))]
    workers = FakeWorkers({"a": [fails]})
    settings = Settings(cache=CacheMode.WARM)
    assert [record.outcome for record in scheduler(workers, settings=settings).run(plan("a"))] == [failed]
    assert len(workers.did("start")) == 2


def test_a_case_that_is_tried_once_more_finds_its_caches_filled() -> None:
    oom = msgspec.structs.replace(OOM, stage=Stage.BUILD)
    fails: Script = [(5, oom), (0, Exited(0))]
    workers = FakeWorkers({"a": [FAILS, COMPILES, fails, FAILS, COMPILES, MEASURES], "b": [READS, MEASURES]})
    records = {record.case.model: record for record in scheduler(workers, settings=BOTH).run(plan("a", "b"))}
    assert candidate(records["a"]) == (None, OOM)
    assert [name for _, name in workers.did("start")].count("a@cpu") == 6


@pytest.mark.parametrize(
    ("cache", "caches"),
    [
        (CacheMode.WARM, ["shared", "shared"]),
        (CacheMode.COLD, ["first", "second"]),
        (CacheMode.SHARED, ["of all", "of all"]),
    ],
)
def test_caches_are_those_of_the_process_before_if_they_are_to_be_warm(
    cache: CacheMode, caches: list[str], tmp_path: Path
) -> None:
    settings = Settings(cache=cache, cache_dir=str(tmp_path / "of all") if cache is CacheMode.SHARED else None)
    run = PoolRun(pool=Pool([]), settings=settings)
    worker = PlannedCase(case=CASE, spec=SPEC)
    before = msgspec.structs.replace(worker, before=Before.PRIME)
    asked = [
        run.request(planned, LANE, tmp_path / "log", str(tmp_path / name), tmp_path / "shared")
        for planned, name in ((before, "first"), (worker, "second"))
    ]
    assert [one.caches for one in asked] == [str(tmp_path / name) for name in caches]


def test_a_case_that_is_tried_once_more_fills_its_caches_although_they_were_filled_before() -> None:
    """The process without eager works at first, and fails when the case is tried again: then `COMPILES` is needed."""
    oom = msgspec.structs.replace(OOM, stage=Stage.BUILD)
    fails: Script = [(5, oom), (0, Exited(0))]
    workers = FakeWorkers({"a": [READS, fails, FAILS, COMPILES, MEASURES], "b": [READS, MEASURES]})
    records = {record.case.model: record for record in scheduler(workers, settings=BOTH).run(plan("a", "b"))}
    assert candidate(records["a"]) == (None, OOM)
    assert [name for _, name in workers.did("start")].count("a@cpu") == 5
