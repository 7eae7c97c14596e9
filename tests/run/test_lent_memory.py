"""Device memory that workers lend while they compile and wait: who gets it, and that it is never promised twice."""

from __future__ import annotations

import random
from pathlib import Path

import pytest
from fake_workers import GOOD, LIMITS, FakeWorkers, Script, entries, outcomes, scheduler

from examples import measured
from torchzoo.record import Failed, FailureKind, Record
from torchzoo.run.lanes import Lane
from torchzoo.run.room import CONTEXT_BYTES, DEVICE_SHARE, Room, kind_of
from torchzoo.run.workers import Asks, Exited, Lends, Message, Running
from torchzoo.settings import Stage

GIB = 2**30


def lends(held_gib: float, peak_gib: float) -> Lends:
    return Lends(held_bytes=round(held_gib * GIB) - CONTEXT_BYTES, peak_bytes=round(peak_gib * GIB))


def script(held_gib: float, peak_gib: float, *, compiles_s: float = 20.0, checks: bool = False) -> Script:
    """A worker that needs its peak while it steps, and lends what it can while it compiles and waits."""
    lent = lends(held_gib, peak_gib)
    until_examined: Script = [
        (1, Stage.WARM_UP),
        (2, Stage.COMPILE),
        (0, lent),
        (compiles_s, Asks()),
        (2, lent),
        (0, Stage.WAIT),
        (0, Stage.MEASURE),
        (5, lent),
        (0, Stage.EXAMINE),
        (0, Asks()),
    ]
    end: Script = [(1, measured()), (1, Exited(0))]
    check: Script = [(1, Stage.HOLD), (0, Stage.CHECK), (3, lent), (compiles_s, Asks())]
    return until_examined + (check if checks else []) + end


class Device(FakeWorkers):
    """Workers of one device, which notes how much of its memory is in use at each time."""

    def __init__(self, scripts: dict[str, list[Script]], peaks_gib: dict[str, float], memory_gib: float) -> None:
        super().__init__(scripts)
        self.lane = Lane(device="cuda:0", memory_bytes=round(memory_gib * GIB / DEVICE_SHARE))
        self.peaks_gib = peaks_gib
        self.used_gib: dict[int, float] = {}
        self.most_used_gib = 0.0

    def start(self, ticket: int, *rest: object) -> None:
        super().start(ticket, *rest)  # type: ignore[arg-type]
        self._use(ticket, self.peaks_gib[self.model(ticket)])

    def model(self, ticket: int) -> str:
        return self.names[ticket].partition("@")[0]

    def wait(self, timeout_s: float) -> list[tuple[int, Message]]:
        messages = super().wait(timeout_s)
        for ticket, message in messages:
            if isinstance(message, Lends):
                self._use(ticket, (message.held_bytes + CONTEXT_BYTES) / GIB)
            if message is Stage.HOLD:
                self._use(ticket, CONTEXT_BYTES / GIB)
            if message in (Stage.MEASURE, Stage.CHECK):
                factor = 2 if message is Stage.CHECK else 1
                self._use(ticket, factor * self.peaks_gib[self.model(ticket)])
        return messages

    def go_on(self, ticket: int) -> None:
        super().go_on(ticket)
        if self.left[ticket] and self.left[ticket][0][1] is not Stage.CHECK:  # from there on it uses twice as much
            self._use(ticket, self.peaks_gib[self.model(ticket)])
        self.say("go on", ticket)

    def kill(self, ticket: int) -> None:
        super().kill(ticket)
        del self.used_gib[ticket]

    def _use(self, ticket: int, gib: float) -> None:
        self.used_gib[ticket] = gib
        self.most_used_gib = max(self.most_used_gib, sum(self.used_gib.values()))


def run(device: Device, jobs: int = 16) -> list[Record]:
    plan = entries(*device.peaks_gib, device="cuda")
    under_test = scheduler(device, jobs=jobs, lanes=(device.lane,))
    under_test.room.learned_bytes = {kind_of(one.case): device.peaks_gib[one.case.model] * GIB / 1.2 for one in plan}
    return list(under_test.run(plan))


def test_others_start_in_what_a_compiling_worker_lends() -> None:
    device = Device({name: [script(5, 50)] for name in "ab"}, {"a": 50, "b": 50}, memory_gib=60)
    assert len(run(device)) == 2
    started = {name: when for when, name in device.did("start")}
    assert started == {"a@cuda:0": 0.0, "b@cuda:0": 3.0}  # as soon as a compiles
    assert device.most_used_gib == 55


def test_without_lending_they_would_run_one_after_the_other() -> None:
    device = Device({name: [GOOD] for name in "ab"}, {"a": 50, "b": 50}, memory_gib=60)
    run(device)
    (_, _), (second_s, _) = device.did("start")
    assert second_s == 37


def test_a_worker_that_asks_waits_until_others_have_lent_or_ended() -> None:
    # b takes its warm-up's memory just before a asks for its own.
    scripts = {"a": [script(5, 50, compiles_s=1)], "b": [script(5, 50, compiles_s=30)]}
    device = Device(scripts, {"a": 50, "b": 50}, memory_gib=60)
    records = run(device)
    assert [record.case.model for record in records] == ["a", "b"]
    asked_s, lent_s = 1 + 2 + 1, 3 + 1 + 2
    first_go_on_s = min(when for when, name in device.did("go on") if name == "a@cuda:0")
    assert first_go_on_s == lent_s > asked_s
    assert device.most_used_gib == 55


def test_waiting_for_memory_is_nobodys_fault() -> None:
    """Its time limits stand still, though others compile longer than a stage may take."""
    scripts = {"a": [script(5, 50, compiles_s=1)], "b": [[(0, lends(5, 50)), (0, Asks()), *script(5, 50)]]}
    scripts["b"][0][2:2] = [(LIMITS.build_s - 1, Stage.BUILD)]
    device = Device(scripts, {"a": 50, "b": 50}, memory_gib=60)
    found = outcomes(run(device))
    assert found == {"a": measured(), "b": measured()}


def test_what_a_window_needs_is_left_for_it() -> None:
    """While one waits to be measured, nobody starts in the memory that its window needs."""
    scripts = {"a": [script(5, 40, compiles_s=1)], "b": [script(5, 10, compiles_s=50)], "c": [script(5, 30)]}
    device = Device(scripts, {"a": 40, "b": 10, "c": 30}, memory_gib=60)
    run(device)
    measured_s = {name: when for when, name in device.did("measure")}
    assert measured_s["a@cuda:0"] < measured_s["b@cuda:0"]
    assert device.most_used_gib <= 60


def test_two_that_lend_and_need_more_than_there_is_take_turns() -> None:
    device = Device({name: [script(20, 55, checks=True)] for name in "abc"}, dict.fromkeys("abc", 55), memory_gib=60)
    found = outcomes(run(device))
    assert found == dict.fromkeys("abc", measured())


def test_a_worker_that_dies_while_it_waits_for_memory_is_reported() -> None:
    dies: Script = [(1, Stage.COMPILE), (0, lends(5, 50)), (1, Asks())]
    device = Device({"a": [script(5, 50, compiles_s=1)], "dies": [dies]}, {"a": 50, "dies": 50}, memory_gib=60)
    wait = device.wait

    def killed(timeout_s: float) -> list[tuple[int, Message]]:
        """The worker is killed as soon as it waits: the other one has just got its memory back."""
        waiting = [ticket for ticket in device.waiting if device.model(ticket) == "dies"]
        for ticket in waiting:
            device.waiting.discard(ticket)
            device.left[ticket] = [(0, Exited(-9))]
        return wait(timeout_s)

    device.wait = killed  # type: ignore[method-assign]
    found = outcomes(run(device))
    assert found["a"] == measured()
    assert found["dies"].kind is FailureKind.CRASHED
    assert not [name for _, name in device.did("go on") if name.startswith("dies")]


def test_a_peak_higher_than_expected_is_believed() -> None:
    scripts = {"a": [script(5, 50)], "b": [script(5, 50)]}
    device = Device(scripts, {"a": 50, "b": 50}, memory_gib=60)
    plan = entries("a", "b", device="cuda")
    under_test = scheduler(device, jobs=2, lanes=(device.lane,))
    under_test.room.learned_bytes = {kind_of(one.case): 20 * GIB for one in plan}
    assert len(list(under_test.run(plan))) == 2
    both_step_s = 3  # until the first has lent: only that was unknown
    times = [when for when, name in device.did("go on") if name == "a@cuda:0"]
    assert min(times) > both_step_s


@pytest.mark.parametrize(("peak_gib", "has_room"), [(40, True), (45, False)])
def test_what_a_check_needs_is_what_it_had_at_its_peak(peak_gib: float, has_room: bool) -> None:  # noqa: FBT001
    lane = Lane(device="cuda:0", memory_bytes=round(66 * GIB / DEVICE_SHARE))
    checks, steps = (
        Running(
            planned=planned,
            lane=lane,
            log=Path(),
            started_at="",
            deadline_s=0.0,
            device_bytes=20 * GIB,
            host_bytes=0.0,
            least_bytes=GIB,
            stage=stage,
        )
        for planned, stage in zip(entries("a", "b", device="cuda"), (Stage.CHECK, Stage.COMPILE), strict=True)
    )
    room = Room(FakeWorkers({}), {1: checks, 2: steps}, jobs=2)
    room.lent(checks, lends(5, peak_gib))
    assert checks.least_bytes == 5 * GIB
    assert room.to_grow(checks) is has_room  # 1.1 times its peak, and a context of 1 GiB, beside 20


@pytest.mark.parametrize("seed", range(40))
def test_memory_is_never_used_twice(seed: int) -> None:
    random_numbers = random.Random(seed)
    peaks, scripts = {}, {}
    for number in range(20):
        name = f"m{number}"
        peaks[name] = random_numbers.uniform(2, 30)
        held = 1.0  # as `least_bytes` expects of a case with few weights
        compiles_s = random_numbers.uniform(1, 90)
        scripts[name] = [script(held, peaks[name], compiles_s=compiles_s, checks=random_numbers.random() < 0.5)]
    device = Device(scripts, peaks, memory_gib=75)
    found = outcomes(run(device))
    assert found == dict.fromkeys(peaks, measured())
    assert device.most_used_gib <= 75
    assert not any(isinstance(one, Failed) for one in found.values())
