"""The budget of a run: each process's share, and what the scheduler lets a case have beyond it."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
import pytest
from fake_workers import FakeWorkers, Script, entries, multi_rank, scheduler, two_lanes

from examples import measured
from torchzoo.record import Block, HostWatch, Measured, Skipped
from torchzoo.run.budget import Budget, processes_in_a_row, share_s
from torchzoo.run.lanes import Lane
from torchzoo.run.plan import Plan
from torchzoo.run.workers import Exited, Timed
from torchzoo.settings import Pass, Settings, Stage

ALONE = (Lane(device="cuda:0"),)
SETTINGS = Settings(share_s=2.0)


def cuda(count: int) -> Plan:
    return entries(*(f"m{number}" for number in range(count)), device="cuda")


# --- the share of each process ---


@pytest.mark.parametrize(
    ("budget", "count", "share"),
    [
        ("auto", 1, None),
        ("auto", 2, 5.5),
        ("auto", 10, 1.5),
        ("auto", 168, 0.5 + 10 / 168),
        (90.0, 30, 3.0),
        (90.0, 9, None),
        (None, 168, None),
        ("auto", 0, None),
    ],
)
def test_a_share_follows_from_the_number_of_processes(budget: Budget | None, count: int, share: float | None) -> None:
    assert share_s(budget, Settings(), cuda(count), ALONE) == pytest.approx(share)


def test_a_run_that_times_nothing_has_no_share() -> None:
    assert share_s("auto", Settings(passes=(Pass.CHECK_ONLY,)), cuda(10), ALONE) is None


def lanes(count: int, host: str = "") -> list[Lane]:
    return [Lane(device=f"cuda:{number}", cores=(2 * number, 2 * number + 1), host=host) for number in range(count)]


def several_ranks() -> list[Lane]:
    """A lane of two ranks that has the devices and the cores of two other lanes."""
    return [*lanes(2), Lane(device="cuda:0", devices=("cuda:0", "cuda:1"), cores=(0, 1, 2, 3))]


@pytest.mark.parametrize(
    ("on", "planned", "count"),
    [
        (lanes(4), cuda(9), 3),
        ([*lanes(2, "a"), *lanes(2, "b")], cuda(9), 3),  # cores of two hosts have the same numbers
        ([Lane(device="cuda:0"), Lane(device="cuda:1")], cuda(9), 9),  # they share all cores
        (several_ranks(), (*cuda(4), *multi_rank("x", "y", "z")), 7),
        ([*lanes(1), Lane(device="cpu")], (*cuda(2), *entries("x")), 3),
        (lanes(1), tuple(msgspec.structs.replace(one, resolved=Skipped(reason="no")) for one in cuda(2)), 0),
    ],
)
def test_what_shares_cores_is_timed_one_after_the_other(on: Sequence[Lane], planned: Plan, count: int) -> None:
    assert processes_in_a_row(planned, on) == count


# --- what the scheduler lets a case have ---


def timed(seconds: float, redone_s: float = 0.0) -> Measured:
    redone = (Block("eager", (redone_s,)),) if redone_s else ()
    host = HostWatch(undisturbed_s=None, looks_s=(), waited_s=0.0, fast_cores=(), was_slow=False, redone=redone)
    return measured(blocks=(Block("eager", (seconds / 2, seconds / 2)),), host=host)


def taking(seconds: float, redone_s: float = 0.0) -> Script:
    """A case whose timing takes so long, which it tells twice, as one that is checked does."""
    found = timed(seconds, redone_s)
    return [
        (1, Stage.WAIT), (0, Stage.MEASURE), (seconds, Timed(found)), (1, Stage.EXAMINE), (1, Timed(found)), (1, found),
        (0, Exited(0)),
    ]  # fmt: skip


def limits_of(scripts: dict[str, Script], settings: Settings = SETTINGS) -> list[float | None]:
    """The limits of the cases on one lane, in the order of their windows."""
    workers = FakeWorkers({name: [script] for name, script in scripts.items()})
    records = list(scheduler(workers, jobs=1, lanes=ALONE, settings=settings).run(entries(*scripts, device="cuda")))
    assert len(records) == len(scripts)
    return [limit_s for _, limit_s in workers.limits_s]


def test_without_a_share_the_settings_limit_each_case() -> None:
    assert limits_of({"a": taking(3.0), "b": taking(3.0)}, Settings()) == [None, None]


def test_a_case_may_use_half_of_what_others_have_left() -> None:
    # At first one share more is left. Quick cases leave 1 s each.
    assert limits_of({"a": taking(1.0), "b": taking(1.0), "c": taking(1.0)}) == pytest.approx([3.0, 3.5, 4.0])


def test_what_a_case_takes_the_others_do_not_have() -> None:
    assert limits_of({"a": taking(3.0), "b": taking(2.5), "c": taking(2.0)}) == pytest.approx([3.0, 2.5, 2.25])


def test_no_case_has_less_than_its_share_or_more_than_the_time_limit() -> None:
    assert limits_of({"a": taking(24.0), "b": taking(2.0)}) == pytest.approx([3.0, 2.0])  # steps of 8 s, three rounds
    quick = {f"m{number}": taking(0.5) for number in range(16)}
    assert limits_of(quick)[-1] == pytest.approx(SETTINGS.time_limit_s)


def test_rounds_that_were_measured_again_count() -> None:
    assert limits_of({"a": taking(2.0, redone_s=1.0), "b": taking(2.0)}) == pytest.approx([3.0, 2.5])


def test_a_case_that_tells_its_times_only_with_its_outcome_counts() -> None:
    at_once: Script = [(1, Stage.WAIT), (0, Stage.MEASURE), (3, timed(3.0)), (1, Exited(0))]
    assert limits_of({"a": at_once, "b": taking(2.0)}) == pytest.approx([3.0, 2.5])


def test_a_case_that_fails_in_its_window_costs_the_others_nothing() -> None:
    fails: Script = [(1, Stage.WAIT), (0, Stage.MEASURE), (1, Exited(-11))]
    assert limits_of({"a": fails, "b": taking(2.0)}) == pytest.approx([3.0, 4.0])


def test_each_lane_has_its_own_budget() -> None:
    workers = FakeWorkers({"a": [taking(3.0)], "b": [taking(2.0)], "c": [taking(1.0)], "d": [taking(2.0)]})
    plan = (*entries("a", "b", device="cuda:0"), *entries("c", "d", device="cuda:1"))
    list(scheduler(workers, jobs=4, lanes=two_lanes(), settings=SETTINGS).run(plan))
    assert dict(workers.limits_s) == pytest.approx({"a@cuda:0": 3.0, "b@cuda:0": 2.5, "c@cuda:1": 3.0, "d@cuda:1": 3.5})
