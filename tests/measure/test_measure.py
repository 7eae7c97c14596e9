"""The measuring loop under a fake clock: interleaving, the stopping rule and its reasons, back-to-back runs."""

from __future__ import annotations

import gc
import itertools
import random
import weakref
from collections import Counter
from collections.abc import Sequence

import msgspec
import pytest
import torch
from fake_clock import FakeClock

from torchzoo import stats
from torchzoo.measure.host import HostGate
from torchzoo.measure.latency import (
    Latency,
    back_to_back,
    measure_latency,
    quiet_python,
    step_until_steady,
    steps_in,
    stop_reason,
    timed_step_s,
)
from torchzoo.measure.memory import measure_memory
from torchzoo.measure.variant import Variant
from torchzoo.measure.warmup import WarmUp, memory_steps, warm_up
from torchzoo.record import Block, StopReason
from torchzoo.settings import Settings

SETTINGS = Settings()
EACH_ONE = {"eager": 1, "candidate": 1}


def never_slow(clock: FakeClock) -> HostGate:
    return HostGate(None, clock.now_ns, look_s=lambda: 1.0)


def measure(
    variants: Sequence[Variant],
    clock: FakeClock,
    settings: Settings,
    *,
    steps_per_block: dict[str, int],
    limit_s: float | None = None,
) -> tuple[tuple[Block, ...], StopReason]:
    """The latency pass on a host that is never slow."""
    gate = never_slow(clock)
    latency = measure_latency(variants, clock, gate, settings, steps_per_block=steps_per_block, limit_s=limit_s)
    assert not latency.host_was_slow
    assert latency.redone == ()
    return latency.blocks, latency.stop_reason


def test_a_sample_waits_for_the_device_before_and_after() -> None:
    clock = FakeClock()
    clock.pending_ns = 5_000_000  # earlier work, not this step's
    assert timed_step_s(clock.variant("eager", lambda: 0.25).step, clock) == pytest.approx(0.25)


def test_a_block_says_when_its_steps_returned() -> None:
    clock = FakeClock()
    host_s = itertools.cycle([0.004, 0.006, 0.020])

    def step() -> None:
        clock.time_ns += round(next(host_s) * 1e9)
        clock.pending_ns += 30_000_000

    variant = Variant(name="eager", step=step, select=lambda: None)
    blocks, _ = measure([variant], clock, SETTINGS, steps_per_block={"eager": 3})
    assert blocks[0].samples_s == pytest.approx((0.034, 0.036, 0.050))
    assert {block.issued_s for block in blocks} == {0.006}


def test_steps_are_taken_until_three_are_alike() -> None:
    clock, selected = FakeClock(), list[str]()
    steps_s = iter([0.09, 0.05, 0.03, 0.02, 0.0201, 0.02, 0.02])
    found = step_until_steady(clock.variant("eager", lambda: next(steps_s), selected), clock)
    assert (found.steps, found.step_s) == (6, pytest.approx(0.02))
    assert selected == ["eager"]
    quick = step_until_steady(clock.variant("eager", lambda: 0.001), clock)
    assert quick.steps == 50  # for 50 ms: two alike are soon found by luck
    slow = step_until_steady(clock.variant("eager", lambda: 5.0), clock)
    assert slow.steps == 1
    rising = iter(range(1, 100))
    assert step_until_steady(clock.variant("eager", lambda: 0.01 * next(rising) ** 2), clock).steps == 7  # 1.4 s


def test_noisy_steps_are_steady_when_they_are_as_long_as_those_before() -> None:
    clock = FakeClock()
    noise = itertools.cycle([1.0, 1.3, 1.15])  # never within 10% of each other
    noisy = step_until_steady(clock.variant("eager", lambda: 0.02 * next(noise)), clock)
    assert (noisy.steps, noisy.step_s) == (6, pytest.approx(0.023))
    getting_faster = (0.02 * factor * next(noise) for factor in [4, 4, 4, 2, 2, 2, 1, 1, 1, 1, 1, 1])
    assert step_until_steady(clock.variant("eager", lambda: next(getting_faster)), clock).steps == 12


def test_two_variants_take_turns_and_select_themselves() -> None:
    clock, selected = FakeClock(), []
    variants = [clock.variant("eager", lambda: 0.02, selected), clock.variant("candidate", lambda: 0.01, selected)]
    blocks, reason = measure(variants, clock, SETTINGS, steps_per_block={"eager": 1, "candidate": 2})
    order = "".join(block.variant[0] for block in blocks)
    pairs = [(order[at : at + 4], order[at + 4 : at + 8]) for at in range(0, len(order) - 7, 8)]
    assert set(pairs) == {("ecce", "ceec"), ("ceec", "ecce")}
    assert selected == [block.variant for block in blocks]
    assert all(len(block.samples_s) == (1 if block.variant == "eager" else 2) for block in blocks)
    assert stats.speedup(blocks).value == pytest.approx(2.0)
    assert reason is StopReason.CONVERGED
    assert clock.time_ns / 1e9 >= SETTINGS.min_time_s


@pytest.mark.parametrize("every", [2, 3, 5, 8])
def test_what_happens_every_so_many_steps_meets_both_variants_alike(every: int) -> None:
    """As a wait for a data loader does, which has batches ready for the next steps.

    With all waits at the same place of a round, which has 4 steps, or 5 with the untimed one: equally often.
    """
    clock, taken = FakeClock(), itertools.count()
    variants = [clock.variant(name, lambda: 0.03 + 0.5 * (next(taken) % every == 0)) for name in ("eager", "candidate")]
    settings = msgspec.structs.replace(SETTINGS, min_samples=2000, time_limit_s=2000.0)
    blocks, _ = measure(variants, clock, settings, steps_per_block=EACH_ONE)
    waits = Counter(block.variant for block in blocks if block.samples_s[0] > 0.5)
    assert waits["eager"] == pytest.approx(waits["candidate"], rel=0.2)
    if every in {2, 5}:
        assert abs(waits["eager"] - waits["candidate"]) <= 1
    assert not stats.speedup(blocks).surely_excludes(1.0)


def after_a_pause(step_s: float, settings: Settings, collections: list[int]) -> tuple[Latency, int]:
    """The latency pass with the same step on both sides; the first one after a collection takes 1 ms more.

    With it how many steps were taken.
    """
    clock, taken = FakeClock(), 0

    def collect() -> None:
        collections.append(taken)

    def took_s() -> float:
        nonlocal taken
        taken += 1
        return step_s + 0.001 * (taken - 1 in collections)

    variants = [clock.variant("eager", took_s), clock.variant("candidate", took_s)]
    steps = dict.fromkeys(("eager", "candidate"), steps_in(settings.block_s, step_s))
    gate = never_slow(clock)
    return measure_latency(variants, clock, gate, settings, steps_per_block=steps, collect=collect), taken


@pytest.mark.parametrize("step_s", [0.002, 0.03])
def test_what_a_pause_costs_the_next_step_is_not_counted_as_eagers_time(step_s: float) -> None:
    collections: list[int] = []
    latency, taken = after_a_pause(step_s, msgspec.structs.replace(SETTINGS, min_time_s=2.0), collections)
    assert len(collections) > 2
    assert all(sample_s == pytest.approx(step_s) for block in latency.blocks for sample_s in block.samples_s)
    assert latency.other_steps == len(collections) - 1  # it is over after the last one
    assert taken == latency.other_steps + sum(len(block.samples_s) for block in latency.blocks)


def test_a_slow_step_is_not_taken_once_more_after_a_pause() -> None:
    collections: list[int] = []
    latency, _ = after_a_pause(0.3, SETTINGS, collections)
    assert len(collections) > 2
    assert latency.other_steps == 0


def test_garbage_is_collected_after_half_a_second_and_not_after_each_round() -> None:
    collections: list[int] = []
    latency, _ = after_a_pause(0.01, msgspec.structs.replace(SETTINGS, min_time_s=2.0), collections)
    rounds = len(latency.blocks) // 4
    assert len(collections) <= rounds // 6  # a round takes 80 ms


def test_steady_steps_converge_and_no_sooner_than_the_minimum() -> None:
    clock = FakeClock()
    blocks, reason = measure([clock.variant("eager", lambda: 0.2)], clock, SETTINGS, steps_per_block=EACH_ONE)
    assert reason is StopReason.CONVERGED
    assert SETTINGS.min_samples <= len(blocks) <= SETTINGS.min_samples + 2


def test_noise_that_time_can_not_cure_is_called_stably_noisy() -> None:
    generator = random.Random(1)
    clock = FakeClock()
    noisy = clock.variant("eager", lambda: 0.2 * generator.lognormvariate(0.0, 0.5))
    blocks, reason = measure([noisy], clock, SETTINGS, steps_per_block=EACH_ONE)
    assert reason is StopReason.STABLY_NOISY
    assert clock.time_ns / 1e9 < SETTINGS.time_limit_s
    assert stats.latency_s(blocks, "eager").relative_half_width > SETTINGS.target_half_width


def test_noise_that_more_time_would_cure_runs_to_the_time_limit() -> None:
    generator = random.Random(1)
    clock = FakeClock()
    noisy = clock.variant("eager", lambda: 0.05 * generator.lognormvariate(0.0, 0.07))
    _, reason = measure([noisy], clock, SETTINGS, steps_per_block=EACH_ONE)
    assert reason is StopReason.TIME_LIMIT
    assert clock.time_ns / 1e9 >= SETTINGS.time_limit_s


#: A case that has a share of 1 s of a run's budget.
SHARED = Settings(share_s=1.0)


def noisy_pass(spread: float, settings: Settings, limit_s: float | None) -> tuple[float, StopReason]:
    """How long a pass of steps of 20 ms took, of which each has this spread, and why it ended."""
    generator, clock = random.Random(1), FakeClock()
    noisy = clock.variant("eager", lambda: 0.02 * generator.lognormvariate(0.0, spread))
    _, reason = measure([noisy], clock, settings, steps_per_block=EACH_ONE, limit_s=limit_s)
    return clock.time_ns / 1e9, reason


@pytest.mark.parametrize("limit_s", [None, 1.0, 3.0, 10.0])
def test_a_case_whose_target_is_out_of_reach_stops_at_its_share_of_the_budget(limit_s: float | None) -> None:
    took_s, reason = noisy_pass(0.5, SHARED, limit_s)
    assert reason is StopReason.BUDGET
    assert 1.0 <= took_s < 1.3


def test_a_case_goes_beyond_its_share_where_that_leads_to_the_target() -> None:
    alone_s, reason = noisy_pass(0.07, SETTINGS, None)
    assert reason is StopReason.CONVERGED
    assert alone_s > 2.0
    took_s, reason = noisy_pass(0.07, SHARED, 10.0)
    assert (took_s, reason) == (pytest.approx(alone_s, abs=1.0), StopReason.CONVERGED)
    assert noisy_pass(0.07, SHARED, 1.2) == (pytest.approx(1.1, abs=0.15), StopReason.BUDGET)


def test_a_case_that_converges_within_its_share_is_timed_as_without_a_budget() -> None:
    assert noisy_pass(0.01, SHARED, 1.0) == noisy_pass(0.01, SETTINGS, None)


def test_a_budget_that_is_not_enough_and_a_time_limit_are_different_reasons() -> None:
    values = [0.98, 1.02] * 10  # 2%: the target needs four times as long
    reasons = {
        (elapsed_s, limit_s): stop_reason(values, samples=20, elapsed_s=elapsed_s, settings=SHARED, limit_s=limit_s)
        for elapsed_s in (0.9, 1.1, 2.0, 10.0)
        for limit_s in (2.0, 10.0)
    }
    assert reasons == {
        (0.9, 2.0): None,
        (0.9, 10.0): None,
        (1.1, 2.0): StopReason.BUDGET,
        (1.1, 10.0): None,
        (2.0, 2.0): StopReason.BUDGET,
        (2.0, 10.0): None,
        (10.0, 2.0): StopReason.BUDGET,
        (10.0, 10.0): StopReason.TIME_LIMIT,
    }


def test_a_case_with_too_few_samples_goes_on_if_enough_fit_within_its_limit() -> None:
    few = {"values": [1.0] * 3, "samples": 3, "elapsed_s": 1.2, "settings": SHARED}  # ten samples take 4 s
    assert stop_reason(**few, limit_s=4.1) is None  # type: ignore[arg-type]
    assert stop_reason(**few, limit_s=3.9) is StopReason.BUDGET  # type: ignore[arg-type]


def test_a_share_that_is_shorter_than_a_step_has_three_rounds() -> None:
    clock = FakeClock()
    variants = [clock.variant("eager", lambda: 20.0), clock.variant("candidate", lambda: 10.0)]
    blocks, reason = measure(variants, clock, SHARED, steps_per_block=EACH_ONE, limit_s=1.0)
    assert (len(blocks), reason) == (3 * 4, StopReason.BUDGET)


@pytest.mark.parametrize("spread", [0.005, 0.04])
def test_intervals_hold_95_times_in_100_although_the_pass_stops_when_they_are_narrow(spread: float) -> None:
    generator = random.Random(7)
    trials, held, found = 400, 0, 0
    for _ in range(trials):
        clock = FakeClock()
        variants = [
            clock.variant("eager", lambda: 0.02 * generator.lognormvariate(0.0, spread)),
            clock.variant("candidate", lambda: 0.02 * generator.lognormvariate(0.0, spread)),
        ]
        blocks, _ = measure(variants, clock, Settings(time_limit_s=5.0), steps_per_block=EACH_ONE)
        speedup = stats.speedup(blocks)
        held += not speedup.excludes(1.0)
        found += speedup.excludes(1 / 1.03)
    assert held / trials >= 0.93  # 95% minus two standard errors
    assert found / trials >= (0.95 if spread < 0.03 else 0.8)  # of a planted slowdown of 3%


def test_a_step_longer_than_the_limit_has_three_rounds() -> None:
    clock = FakeClock()
    variants = [clock.variant("eager", lambda: 20.0), clock.variant("candidate", lambda: 10.0)]
    blocks, reason = measure(variants, clock, SETTINGS, steps_per_block=EACH_ONE)
    assert reason is StopReason.TIME_LIMIT
    assert len(blocks) == 3 * 4
    assert stats.speedup(blocks).has_interval
    alone, reason = measure(variants[:1], clock, SETTINGS, steps_per_block=EACH_ONE)
    assert (len(alone), reason) == (3, StopReason.TIME_LIMIT)
    assert stats.latency_s(alone, "eager").has_interval


def test_too_few_values_for_95_percent_never_converge() -> None:
    assert stop_reason([1.0] * 5, samples=50, elapsed_s=1.0, settings=SETTINGS) is None
    assert stop_reason([1.0] * 6, samples=50, elapsed_s=1.0, settings=SETTINGS) is StopReason.CONVERGED


def test_a_short_time_limit_has_a_shorter_least_time() -> None:
    settings = Settings(time_limit_s=0.3)
    assert stop_reason([1.0] * 6, samples=50, elapsed_s=0.1, settings=settings) is None
    assert stop_reason([1.0] * 6, samples=50, elapsed_s=0.15, settings=settings) is StopReason.CONVERGED


def test_back_to_back_runs_synchronise_once_each() -> None:
    clock = FakeClock()
    runs = back_to_back(clock.variant("eager", lambda: 0.01), clock, never_slow(clock), step_s=0.01)
    assert {run.steps for run in runs} == {3}
    assert len(runs) == 5  # 150 ms of them
    assert clock.synchronisations == 2 * len(runs)
    assert [run.device_s for run in runs] == [pytest.approx(0.03)] * 5
    assert stats.steps_per_s(runs).value == pytest.approx(100.0)


def test_back_to_back_of_slow_steps_stays_within_its_budget() -> None:
    clock = FakeClock()
    runs = back_to_back(clock.variant("eager", lambda: 1.0), clock, never_slow(clock), step_s=1.0)
    assert [run.steps for run in runs] == [2, 2]


@pytest.mark.parametrize(
    ("slow_until_s", "run_s", "slow_runs"),
    [(0.0, 0.03, 0), (0.2, 0.03, 0), (1e9, 0.06, 7)],
    ids=["never", "at first", "always"],
)
def test_back_to_back_runs_on_a_slow_host_are_made_again_until_their_budget_is_over(
    slow_until_s: float, run_s: float, slow_runs: int
) -> None:
    clock = FakeClock()

    def is_slow() -> bool:
        return clock.time_ns < slow_until_s * 1e9

    def look_s() -> float:
        clock.time_ns += 1_000_000
        return 2.0 if is_slow() else 1.0

    gate = HostGate(1.0, clock.now_ns, look_s=look_s)
    variant = clock.variant("eager", lambda: 0.02 if is_slow() else 0.01)
    runs = back_to_back(variant, clock, gate, step_s=0.01, budget_s=0.5)
    assert [run.elapsed_s for run in runs] == [pytest.approx(run_s)] * 7
    assert sum(run.host_was_slow for run in runs) == slow_runs
    assert gate.waited_s <= 0.5
    assert clock.time_ns / 1e9 < 0.5 + 8 * (run_s + 0.1)


def test_back_to_back_runs_say_which_of_them_a_slow_host_disturbed() -> None:
    clock = FakeClock()
    looks = iter([2.0, 1.0])
    runs = back_to_back(
        clock.variant("eager", lambda: 0.01),
        clock,
        HostGate(1.0, clock.now_ns, look_s=lambda: next(looks)),
        step_s=0.01,
        budget_s=0.0,
    )
    assert [run.host_was_slow for run in runs] == [True, False]


def test_warm_up_times_the_first_step_apart_and_goes_on_until_steady() -> None:
    times = iter([9.0, 2.0, 1.5, 1.2, 1.0, 1.0, 1.0, 1.0, 1.0])
    clock = FakeClock()
    result = warm_up(clock.variant("eager", lambda: next(times)), clock, SETTINGS)
    assert result.first_step_s == 9.0
    assert result.steps_s == (2.0, 1.5, 1.2, 1.0, 1.0, 1.0)


def test_warm_up_reads_the_peak_of_the_device_after_the_first_step() -> None:
    steps: list[float] = []
    clock = FakeClock()
    variant = clock.variant("candidate", lambda: steps.append(1.0) or 1.0)  # type: ignore[func-returns-value]
    result = warm_up(variant, clock, SETTINGS, device_peak=lambda: 100 * len(steps))
    assert result.first_step_peak_bytes == 100
    assert result.steps > 3


def test_warm_up_goes_on_until_nothing_is_compiled_any_more_within_a_limit() -> None:
    def warmed(graphs_after: list[int], settings: Settings = SETTINGS) -> int:
        clock, steps = FakeClock(), []
        variant = clock.variant("candidate", lambda: steps.append(1) or 0.1)  # type: ignore[func-returns-value]
        counted = lambda: graphs_after[min(len(steps), len(graphs_after) - 1)]  # noqa: E731
        return len(warm_up(variant, clock, settings, counted).steps_s)

    assert warmed([0, 1]) == SETTINGS.warmup_min_steps
    assert warmed([0, 1, 1, 2, 3, 3, 4]) == 5 + 3  # three steps after the last graph; the first step is not counted
    assert warmed(list(range(1000))) == SETTINGS.compiling_max_steps
    assert warmed(list(range(1000)), Settings(compiling_limit_s=1.5)) == 15


def test_being_stopped_in_the_warm_up_takes_none_of_its_time() -> None:
    """Others are measured meanwhile, for minutes where many are ready at once."""
    times = [0.1, 0.1, 130.0, *[0.1] * 20]
    graphs, clock, steps = [*range(1, 16), 15, 15, 15, 15], FakeClock(), iter(times)
    taken: list[float] = []

    def step_s() -> float:
        taken.append(next(steps))
        return taken[-1]

    counted = lambda: graphs[min(len(taken), len(graphs) - 1)]  # noqa: E731
    warm = warm_up(clock.variant("candidate", step_s), clock, SETTINGS, counted)
    assert warm.steps == 1 + 13 + 3  # until nothing was compiled in three steps
    late = WarmUp(first_step_s=1.0, first_step_cpu_s=1.0, steps_s=(0.1, 0.1, 130.0), result_is_finite=True)
    assert late.steady_s == 0.1


def test_warm_up_says_whether_the_last_result_was_finite() -> None:
    clock = FakeClock()
    good = Variant(name="eager", step=lambda: torch.ones(2), select=lambda: None)
    bad = Variant(name="eager", step=lambda: {"loss": torch.tensor(float("nan"))}, select=lambda: None)
    assert warm_up(good, clock, SETTINGS).result_is_finite
    assert not warm_up(bad, clock, SETTINGS).result_is_finite


@pytest.mark.parametrize(("step_s", "steps"), [(0.001, 3), (0.9, 2), (30.0, 1)])
def test_the_memory_pass_of_slow_steps_is_short(step_s: float, steps: int) -> None:
    warm = WarmUp(first_step_s=step_s, first_step_cpu_s=step_s, steps_s=(step_s,), result_is_finite=True)
    assert memory_steps(SETTINGS, warm) == steps


def test_garbage_of_what_came_before_is_not_in_the_peak() -> None:
    """Compiling leaves cycles of references that hold tensors."""

    class Node:
        def __init__(self) -> None:
            self.itself, self.tensor = self, torch.ones(2)

    node, alive = Node(), []
    tensor = weakref.ref(node.tensor)
    gc.disable()
    try:
        del node
        assert tensor() is not None
        measure_memory(lambda: alive.append(tensor() is not None), 1, torch.device("cpu"))
    finally:
        gc.enable()
    assert alive == [False]


def test_warm_up_that_never_steadies_ends() -> None:
    generator = random.Random(0)
    clock = FakeClock()
    result = warm_up(clock.variant("eager", lambda: generator.uniform(0.1, 10)), clock, Settings(warmup_limit_s=1e9))
    assert len(result.steps_s) <= SETTINGS.warmup_max_steps


def test_the_collector_is_off_inside_and_on_after() -> None:
    with pytest.raises(KeyError), quiet_python():
        assert not gc.isenabled()
        raise KeyError
    assert gc.isenabled()


@pytest.mark.parametrize(("seconds", "step_s", "steps"), [(0.02, 0.001, 20), (0.02, 1.0, 1), (0.02, 0.012, 2)])
def test_a_block_is_20_ms_or_one_step(seconds: float, step_s: float, steps: int) -> None:
    assert steps_in(seconds, step_s) == steps
