"""The gate for the host under a fake clock: what was timed while the host was slow is timed again, whoever it was."""

from __future__ import annotations

import gc
import os
import random
import subprocess
import sys
import time
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
import torch
from fake_clock import FakeClock

from torchzoo import stats
from torchzoo.machine.limits import usable_cores
from torchzoo.measure.case_rank import AutogradThread
from torchzoo.measure.host import LOOKS, SLOW, HostGate, in_this_thread
from torchzoo.measure.latency import Latency, host_share, measure_latency
from torchzoo.record import StopReason
from torchzoo.settings import Settings

SETTINGS = Settings(time_limit_s=5.0)
LOOP_S = 0.001
SLOWDOWN = 1.5


class Host:
    """A host whose speed a function of the clock and of the variant in turn decides. Its looks take their time."""

    def __init__(self, is_slow: Callable[[Host], bool]) -> None:
        self.clock = FakeClock()
        self.is_slow = is_slow
        self.turn = ""
        self.generator = random.Random(3)
        self.gate = HostGate(LOOP_S, self.clock.now_ns, look_s=self.look_s)

    @property
    def now_s(self) -> float:
        return self.clock.time_ns / 1e9

    def seconds(self, quick_s: float) -> float:
        return quick_s * (SLOWDOWN if self.is_slow(self) else 1.0)

    def look_s(self) -> float:
        took_s = self.seconds(LOOP_S)
        self.clock.time_ns += round(took_s * 1e9)
        return took_s

    def measure(
        self,
        eager_s: float = 0.02,
        candidate_s: float = 0.01,
        collect: Callable[[], object] = gc.collect,
        limit_s: float | None = None,
    ) -> Latency:
        def step_s(name: str, quick_s: float) -> Callable[[], float]:
            def seconds() -> float:
                self.turn = name
                return self.seconds(quick_s) * self.generator.lognormvariate(0.0, 0.002)

            return seconds

        variants = [
            self.clock.variant("eager", step_s("eager", eager_s)),
            self.clock.variant("candidate", step_s("candidate", candidate_s)),
        ]
        steps = {"eager": 1, "candidate": 2}
        return measure_latency(
            variants, self.clock, self.gate, SETTINGS, limit_s=limit_s, steps_per_block=steps, collect=collect
        )


def test_garbage_is_collected_after_each_round_that_is_set_aside() -> None:
    host, collected_s = Host(lambda host: host.now_s < 3.0), list[float]()
    latency = host.measure(collect=lambda: collected_s.append(host.now_s))
    assert not latency.host_was_slow
    assert len([at_s for at_s in collected_s if at_s < 3.0]) >= len(latency.redone) // 4 > 0


def test_a_fast_host_has_nothing_measured_again() -> None:
    host = Host(lambda _: False)
    latency = host.measure()
    assert (latency.redone, latency.host_was_slow) == ((), False)
    assert latency.stop_reason is StopReason.CONVERGED
    assert host.gate.waited_s == 0.0


def test_a_host_that_is_always_slow_ends_in_bounded_time_and_says_so() -> None:
    host = Host(lambda _: True)
    latency = host.measure()
    assert latency.host_was_slow
    assert latency.redone == ()  # all rounds count: there are no better ones
    assert host.now_s < 3 * SETTINGS.time_limit_s
    assert stats.speedup(latency.blocks).value == pytest.approx(2.0, rel=0.01)


def test_a_case_with_less_time_waits_less_for_a_fast_host() -> None:
    host = Host(lambda _: True)
    assert host.measure(limit_s=1.0).host_was_slow
    assert host.now_s < 3 * 1.0


def test_a_host_that_is_slow_at_random_gives_what_the_fast_one_gives() -> None:
    host = Host(lambda host: int(host.now_s * 2) % 3 == 1)  # half a second in every one and a half
    latency = host.measure()
    assert latency.redone
    assert not latency.host_was_slow
    assert stats.latency_s(latency.blocks, "eager").value == pytest.approx(0.02, rel=0.01)
    assert max(sample for block in latency.blocks for sample in block.samples_s) < 0.02 * 1.1
    assert stats.speedup(latency.blocks).value == pytest.approx(2.0, rel=0.01)


def test_steps_after_a_wait_are_steady_before_they_are_timed() -> None:
    """The wait moves the threads to other cores: there, the first steps are slower."""
    host = Host(lambda host: host.now_s < 0.2)
    cold = {"eager": 0, "candidate": 0}
    wait = host.gate.wait

    def waited(limit_s: float) -> bool:
        cold.update(eager=3, candidate=3)
        return wait(limit_s)

    host.gate.wait = waited  # type: ignore[assignment,method-assign]
    seconds = host.seconds

    def slower(quick_s: float) -> float:
        took_s = seconds(quick_s)
        if quick_s != LOOP_S and cold[host.turn]:
            cold[host.turn] -= 1
            return 1.5 * took_s
        return took_s

    host.seconds = slower  # type: ignore[method-assign]
    latency = host.measure()
    assert latency.redone
    assert latency.other_steps >= 6
    assert max(sample for block in latency.blocks for sample in block.samples_s) < 0.02 * 1.1


@pytest.mark.parametrize("name", ["eager", "candidate"])
def test_a_host_that_is_slow_in_one_variant_only_favours_neither(name: str) -> None:
    # For its first seconds, the host is slow whenever this variant runs, and in the look right after it.
    host = Host(lambda host: host.turn == name and host.now_s < 1.0)
    latency = host.measure()
    assert not latency.host_was_slow
    assert {block.variant for block in latency.redone} == {"eager", "candidate"}
    assert len(latency.redone) % 4 == 0  # whole rounds
    assert stats.speedup(latency.blocks).value == pytest.approx(2.0, rel=0.01)


@pytest.mark.parametrize("name", ["eager", "candidate"])
def test_where_the_slow_host_is_the_variants_own_doing_it_is_measured_and_said(name: str) -> None:
    # It never ends: what the variant does slows the host down. The figure is the variant's own, and stays.
    host = Host(lambda host: host.turn == name)
    latency = host.measure()
    assert latency.host_was_slow
    expected = 2.0 * (SLOWDOWN if name == "eager" else 1 / SLOWDOWN)
    assert stats.speedup(latency.blocks).value == pytest.approx(expected, rel=0.01)


def test_a_window_waits_for_the_host_and_gives_up() -> None:
    host = Host(lambda host: host.now_s < 2.0)
    assert host.gate.wait(limit_s=5.0)
    assert host.gate.waited_s == pytest.approx(2.0 + LOOKS * LOOP_S, abs=0.01)
    hopeless = Host(lambda _: True)
    assert not hopeless.gate.wait(limit_s=5.0)
    assert hopeless.gate.waited_s == pytest.approx(5.0, abs=0.01)


class Cores:
    """Cores of which some are slow, and a process that the gate keeps on some of them."""

    def __init__(self, slow: Callable[[float], set[int]]) -> None:
        self.clock = FakeClock()
        self.slow = slow  # the slow cores at a time
        self.here = 0
        self.kept: list[set[int]] = []
        self.gate = HostGate(
            LOOP_S,
            self.clock.now_ns,
            range(6),
            look_s=self.look_s,
            pin_thread=self.move,
            pin_all=lambda cores: self.kept.append(set(cores)),
        )

    def move(self, core: int) -> None:
        self.here = core

    def look_s(self) -> float:
        took_s = LOOP_S * (SLOWDOWN + 0.1 * self.here if self.here in self.slow(self.clock.time_ns / 1e9) else 1.0)
        self.clock.time_ns += round(took_s * 1e9)
        return took_s


def test_the_process_is_kept_on_the_fast_cores() -> None:
    cores = Cores(lambda _: {0, 3})
    assert cores.gate.wait()
    assert cores.kept == [{1, 2, 4, 5}]
    assert cores.gate.fast_cores == (1, 2, 4, 5)


def test_it_waits_for_enough_fast_cores_and_then_takes_the_fastest() -> None:
    waits = Cores(lambda now_s: {1, 2, 3, 4, 5} if now_s < 1.0 else {0})
    assert waits.gate.wait()
    assert waits.gate.fast_cores == (1, 2, 3, 4, 5)
    assert 1.0 <= waits.gate.waited_s < 1.1
    hopeless = Cores(lambda _: {1, 2, 3, 4, 5})
    assert not hopeless.gate.wait(limit_s=1.0)
    assert hopeless.gate.fast_cores == (0, 1, 2)
    assert hopeless.gate.waited_s < 1.1


def test_a_process_that_computes_in_several_threads_keeps_a_core_for_each() -> None:
    cores = Cores(lambda _: {0, 1, 2})
    cores.gate.least_cores = 5
    assert not cores.gate.wait(limit_s=0.1)
    assert cores.gate.fast_cores == (3, 4, 5, 0, 1)  # the fastest of the slow ones, too


def test_threads_that_take_turns_keep_to_the_fastest_core_until_it_is_released() -> None:
    cores = Cores(lambda now_s: {0, 3} if now_s < 1.0 else {1, 3})
    driving = {"python": -1, "autograd": -1}

    def thread(name: str) -> Callable[[Callable[[], Any]], Any]:
        def run(do: Callable[[], Any]) -> Any:
            result = do()
            driving[name] = cores.here
            return result

        return run

    cores.gate.threads = [thread(name) for name in driving]
    cores.gate.release()
    assert cores.gate.wait()
    assert driving == {"python": -1, "autograd": -1}  # left alone
    cores.gate.one_core = True
    assert cores.gate.wait()
    assert driving == {"python": 1, "autograd": 1}
    cores.clock.time_ns = 10**9
    assert cores.gate.wait()
    assert driving == {"python": 0, "autograd": 0}
    cores.gate.release()
    assert cores.kept == [{1, 2, 4, 5}] * 2 + [{0, 2, 4, 5}] * 2


FORKS = """
import os, time
from torchzoo.machine.limits import usable_cores
from torchzoo.measure.host import HostGate

gate = HostGate(1.0, time.perf_counter_ns, usable_cores(), one_core=True)
os.register_at_fork(after_in_child=gate.release)
gate.wait()
print(len(os.sched_getaffinity(0)), flush=True)
if os.fork() == 0:
    print(sorted(os.sched_getaffinity(0)) == sorted(gate.fast_cores), flush=True)
    os._exit(0)
os.wait()
"""


@pytest.mark.skipif(len(usable_cores()) < 2, reason="there is one core only")
def test_a_process_that_a_step_starts_has_all_the_cores() -> None:
    done = subprocess.run([sys.executable, "-c", FORKS], check=True, capture_output=True, text=True)
    assert done.stdout.split() == ["1", "True"]


@pytest.mark.gpu
def test_both_threads_of_a_training_step_are_moved() -> None:
    device = torch.device(torch.accelerator.current_accelerator())  # type: ignore[arg-type]
    before = os.sched_getaffinity(0)
    threads = (in_this_thread, AutogradThread(device))
    gate = HostGate(1.0, time.perf_counter_ns, usable_cores(), threads=threads, one_core=True)
    gate.wait()
    ours, autograds = (run(partial(os.sched_getaffinity, 0)) for run in threads)
    assert ours == autograds
    assert len(ours) == 1
    gate.release()
    assert [run(partial(os.sched_getaffinity, 0)) for run in threads] == [before, before]


def test_the_slowest_of_the_threads_that_drive_a_step_decides() -> None:
    looks = {"python": iter([1.0, 1.0, 2.0]), "autograd": iter([1.0, 2.0, 1.0])}
    here = ["python"]

    def in_autograd(do: Callable[[], Any]) -> Any:
        here.append("autograd")
        result = do()
        here.pop()
        return result

    gate = HostGate(1.0, FakeClock().now_ns, look_s=lambda: next(looks[here[-1]]))
    gate.threads = (in_this_thread, in_autograd)
    assert [gate.is_slow() for _ in range(3)] == [False, True, True]
    assert gate.looks_s == [1.0, 2.0, 2.0]


def test_a_loop_a_little_slower_than_usual_is_no_slow_host() -> None:
    clock = FakeClock()
    looks = iter([SLOW * 0.99, SLOW * 1.01])
    gate = HostGate(1.0, clock.now_ns, look_s=lambda: next(looks))
    assert [gate.is_slow() for _ in range(2)] == [False, True]


def test_without_a_known_speed_the_host_is_never_slow() -> None:
    clock = FakeClock()
    gate = HostGate(None, clock.now_ns, look_s=lambda: 100.0)
    assert gate.wait()
    assert not gate.is_slow()


def test_a_step_that_waits_for_the_device_is_not_measured_again_on_a_slow_host() -> None:
    host = Host(lambda _: True)
    host.gate.matters = False
    latency = host.measure()
    assert (latency.redone, latency.host_was_slow) == ((), False)
    assert min(host.gate.looks_s) == pytest.approx(SLOWDOWN * LOOP_S)  # what the host did is recorded all the same


@pytest.mark.parametrize(("host_s", "device_s", "share"), [(0.001, 0.009, 0.1), (0.004, 0.0, 1.0)])
def test_the_share_of_a_step_in_which_the_host_drives_it(host_s: float, device_s: float, share: float) -> None:
    clock = FakeClock()

    def step() -> None:
        clock.time_ns += round(host_s * 1e9)
        clock.pending_ns += round(device_s * 1e9)

    assert host_share(step, clock) == pytest.approx(share)


def test_few_slow_steps_tell_the_share() -> None:
    clock, steps = FakeClock(), [0]

    def step() -> None:
        steps[0] += 1
        clock.pending_ns += 150_000_000

    assert host_share(step, clock) == 0.0
    assert steps == [2]
