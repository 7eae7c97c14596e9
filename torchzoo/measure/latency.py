"""Time synchronised steps in blocks of eager and candidate in turns (A B B A, B A A B), and measure throughput."""

from __future__ import annotations

import contextlib
import gc
import random
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Any, NamedTuple

from torchzoo import stats
from torchzoo.measure.clock import Clock, DeviceClock, issuing_clock
from torchzoo.measure.host import HostGate
from torchzoo.measure.variant import Variant
from torchzoo.record import BackToBack, Block, StopReason
from torchzoo.settings import Settings

# When to stop: the idea is that of nvbench's stopping criteria (github.com/NVIDIA/nvbench).


def stop_reason(
    values: Sequence[float], *, samples: int, elapsed_s: float, settings: Settings, limit_s: float | None = None
) -> StopReason | None:
    """Return the reason to stop now, or None to go on.

    - `converged`: the half-width of the 95% interval is within the target.
    - `stably_noisy`: the spread no longer changes, and at the time limit the half-width would still be more than twice
      the target (the half-width shrinks with the square root of time).
    - `time_limit`: the time limit is reached.
    - `budget`: the case has had its share of the run's budget, and would not converge within `limit_s`; or that time is
      over. Only a case with a share (`settings.share_s`) stops so.

    The least time is that of the settings, or half of the limit where that is shorter.

    Args:
        values: block times (eager alone) or paired ratios, in the order of time. Their median is the figure.
        samples: timed steps so far, of the variant that has fewest.
        elapsed_s: since the pass began.
        settings: the limits.
        limit_s: the most time that the run's budget gives this case; None: the time limit of the settings.
    """
    longest_s = settings.time_limit_s
    limit_s = longest_s if limit_s is None else limit_s
    needed_s = stats.time_to_reach(settings.target_half_width, values, elapsed_s)
    if samples >= settings.min_samples and elapsed_s >= min(settings.min_time_s, limit_s / 2):
        estimate = stats.median_estimate(values)
        reached = estimate.confidence >= stats.STATED_CONFIDENCE
        if reached and estimate.relative_half_width <= settings.target_half_width:
            return StopReason.CONVERGED
        if reached and elapsed_s >= longest_s / 3 and needed_s > 4 * longest_s and _is_stable(values):
            return StopReason.STABLY_NOISY
    if elapsed_s >= limit_s:
        return StopReason.TIME_LIMIT if limit_s >= longest_s else StopReason.BUDGET
    if settings.share_s is not None and elapsed_s >= settings.share_s:
        # An interval as wide as now at the end of the share would need so long. Estimates vary: if each later one had
        # to be within the limit, too, one of them would soon end a case that converges.
        needed_s *= settings.share_s / elapsed_s
        least_s = elapsed_s * max(settings.min_samples / samples, stats.VALUES_FOR_95 / len(values))
        return StopReason.BUDGET if max(needed_s, least_s) > limit_s else None
    return None


def _is_stable(values: Sequence[float]) -> bool:
    """Whether the spread over all values is within 10% of that over their first two thirds."""
    earlier = stats.relative_mad(values[: len(values) * 2 // 3])
    return abs(stats.relative_mad(values) - earlier) <= 0.1 * earlier


@contextlib.contextmanager
def quiet_python() -> Iterator[None]:
    """Turn garbage collection off. Explicit collections inside skip the objects that are alive now (`gc.freeze`)."""
    gc.collect()
    gc.freeze()
    gc.disable()
    try:
        yield
    finally:
        gc.enable()
        gc.unfreeze()


class TimedStep(NamedTuple):
    """The seconds until a step returned, and until the device had done its work.

    `cpu_s` is the CPU time of the threads that issue the step until it returned. On the CPU it is 0, since reading its
    clock takes a microsecond, which only an accelerator hides.
    """

    issued_s: float
    took_s: float
    cpu_s: float


def timed_step(step: Callable[[], Any], clock: Clock) -> TimedStep:
    """Measure the wall time of one step, with the device synchronised before and after the step."""
    cpu_now = issuing_clock(clock) if clock.is_asynchronous else _no_time
    clock.synchronize()
    cpu_before = cpu_now()
    start = clock.now_ns()
    step()
    returned = clock.now_ns()
    cpu_after = cpu_now()
    clock.synchronize()
    return TimedStep((returned - start) / 1e9, (clock.now_ns() - start) / 1e9, (cpu_after - cpu_before) / 1e9)


def _no_time() -> int:
    return 0


def timed_step_s(step: Callable[[], Any], clock: Clock) -> float:
    """Return the seconds of one step, until the device had done its work."""
    return timed_step(step, clock).took_s


class Steadied(NamedTuple):
    """The number of steps until they were steady, and the time of a steady step."""

    steps: int
    step_s: float


def step_until_steady(variant: Variant, clock: Clock, *, least_s: float = 0.05, limit_s: float = 1.0) -> Steadied:
    """Take steps for `least_s` and until they are steady, or for `limit_s`.

    Steps are steady if the last three are within 10% of each other. Noise can be larger than 10%. So steps are also
    steady if the median of the last three is within 10% of that of the three before.

    The device may have rested since the warm-up, and the threads may have been moved to other cores. During the warm-up
    other workers compiled at the same time, so those steps say little about the time of a step in a window.
    """
    variant.select()
    steps_s: list[float] = []
    while sum(steps_s) < limit_s:
        steps_s.append(timed_step_s(variant.step, clock))
        if sum(steps_s) >= least_s and _are_steady(steps_s):
            break
    return Steadied(len(steps_s), median(steps_s[-3:]))


def _are_steady(steps_s: Sequence[float]) -> bool:
    last, before = steps_s[-3:], steps_s[-6:-3]
    if len(last) == 3 and are_alike(last):
        return True
    return len(before) == 3 and are_alike([median(before), median(last)])


def are_alike(times_s: Sequence[float]) -> bool:
    """Whether times are within 10% of each other."""
    return max(times_s) <= 1.1 * min(times_s)


#: The most steps that `host_share` takes, and for how long it goes on after the first.
HOST_SHARE_STEPS = 3
HOST_SHARE_S = 0.2


def host_share(step: Callable[[], Any], clock: Clock) -> float:
    """Return the share of a step's wall time in which the host drives it, the median over some steps.

    In the rest the host waits for the device. On the CPU the share is 1.
    """
    shares: list[float] = []
    began = clock.now_ns()
    while len(shares) < HOST_SHARE_STEPS and (not shares or clock.now_ns() - began < HOST_SHARE_S * 1e9):
        timed = timed_step(step, clock)
        shares.append(timed.issued_s / timed.took_s)
    return median(shares)


@dataclass(frozen=True, kw_only=True)
class Latency:
    """The timed blocks that count, in the order of time, and those that were measured again since the host was slow.

    `host_was_slow` says that the host was slow in blocks that count, too: no time was left to measure them again.
    `other_steps` is the number of steps outside of all these blocks.
    """

    blocks: tuple[Block, ...]
    redone: tuple[Block, ...]
    stop_reason: StopReason
    host_was_slow: bool
    other_steps: int = 0


#: The least number of rounds that count, whatever the time limit: fewer rounds give no interval.
LEAST_ROUNDS = 3

#: There is a pause at the end of the round in which this time is over. Until then, garbage may hold device memory.
PAUSE_AFTER_S = 0.5

#: A step shorter than this notices a pause before it: the first step of a small model in training takes a tenth longer
#: after a pause.
QUICK_S = 0.1


@dataclass(frozen=True, kw_only=True)
class _Round:
    blocks: list[Block]
    is_slow: bool  # whether the host was slow
    took_s: float


def _quick_ones(turns: Sequence[Variant], blocks: Sequence[Block]) -> list[Variant]:
    """Return the variants of a round whose steps would notice a pause, by the blocks of the first round.

    The first round always decides: if the last steps decided, a wait in one of them would move the next step.
    """
    quick = {block.variant for block in blocks if min(block.samples_s) < QUICK_S}
    return [variant for variant in turns if variant.name in quick]


def _rounds_of(variants: Sequence[Variant], *, has_slow_steps: bool) -> Iterator[Sequence[Variant]]:
    """Yield the order of the variants' blocks, round by round.

    Of two rounds one is A B B A and the other B A A B; chance decides which comes first. A step may wait at regular
    intervals, as for a data loader. If all rounds had one order, such waits could fall on one variant alone. The seed
    is fixed: all processes and all ranks have the same orders.
    """
    if len(variants) == 1:
        while True:
            yield (variants[0],) * (1 if has_slow_steps else 4)
    a, b = variants
    orders = [(a, b, b, a), (b, a, a, b)]
    source = random.Random(0)  # noqa: S311  no secret
    while True:
        source.shuffle(orders)
        yield from orders


def measure_latency(
    variants: Sequence[Variant],
    clock: Clock,
    gate: HostGate,
    settings: Settings,
    *,
    limit_s: float | None = None,
    steps_per_block: dict[str, int],
    collect: Callable[[], object] = gc.collect,
    reference: Callable[[float], float | None] = lambda _: None,
) -> Latency:
    """Time blocks of one variant (A A A A ...) or of two (A B B A  B A A B ...) until the stopping rule ends the pass.

    A block has as many steps of a variant as `steps_per_block` says, so that both variants get about the same time. A
    round is four blocks (or one, if a single variant has slow steps) in the order of `_rounds_of`. There are at least
    `LEAST_ROUNDS`, whatever the time limit. Every half second there is a pause after a round: garbage is collected
    (`collect`), and the stopping rule is evaluated. A quick step takes longer after a pause. So where a variant is
    quick, one more step is taken first, and not timed, whichever variant comes first. The rule is evaluated only after
    the number of rounds has grown by a fifth: each evaluation is another chance that values which are close by luck end
    the pass too early. At the end of the case's share of a budget (`settings.share_s`) it is evaluated in any case.

    After each block the host takes its reference work.

    The gate checks the host after each block, and after a pause. If a check finds the host slow, the whole round is set
    aside, the gate waits, steps are taken until they are steady on the cores that it chose, and the round is measured
    again. Measured times do not decide on it, and both variants of a round are set aside together, so the rule favours
    neither. These rounds and waits may take half of the case's share of a budget, else `limit_s`. After that all rounds
    count, with those that were set aside.

    `limit_s` is the most time that the rounds may take, where a run's budget gives the case less than the settings.
    """
    limit_s = settings.time_limit_s if limit_s is None else limit_s
    most_lost_s = limit_s if settings.share_s is None else min(limit_s, settings.share_s / 2)
    rounds: list[_Round] = []
    orders = _rounds_of(variants, has_slow_steps=max(steps_per_block.values()) == 1)
    rule = _Rule(variants, steps_per_block, settings, limit_s)
    lost_s, gave_up, other_steps = 0.0, False, 0
    has_paused, paused = True, clock.now_ns()
    while True:
        turns, began = next(orders), clock.now_ns()
        if has_paused and rounds and (quick := _quick_ones(turns, rounds[0].blocks)):
            quick[0].select()
            timed_step(quick[0].step, clock)
            other_steps += 1
        is_slow = has_paused and gate.is_slow()
        blocks, is_slow = _one_round(turns, clock, gate, steps_per_block, reference, is_slow=is_slow)
        rounds.append(_Round(blocks=blocks, is_slow=is_slow, took_s=(clock.now_ns() - began) / 1e9))
        if is_slow and not gave_up:
            collect()
            gate.wait(max(0.0, most_lost_s - lost_s))
            other_steps += sum(step_until_steady(variant, clock).steps for variant in variants)
            lost_s += (clock.now_ns() - began) / 1e9
            gave_up = lost_s >= most_lost_s
            if not gave_up:
                has_paused = True
                continue
        that_count = [one for one in rounds if gave_up or not one.is_slow]
        elapsed_s = sum(one.took_s for one in that_count)
        has_paused = rule.is_due(elapsed_s) or (clock.now_ns() - paused) / 1e9 >= PAUSE_AFTER_S
        if has_paused:
            collect()
            counted = [block for one in that_count for block in one.blocks]
            reason = rule.reason(counted, elapsed_s) if len(that_count) >= LEAST_ROUNDS else None
            if reason is not None:
                return Latency(
                    blocks=tuple(counted),
                    redone=() if gave_up else tuple(block for one in rounds if one.is_slow for block in one.blocks),
                    stop_reason=reason,
                    host_was_slow=gave_up,
                    other_steps=other_steps,
                )
            paused = clock.now_ns()


class _Rule:
    """The stopping rule, evaluated only after the number of values has grown by a fifth, or when it is due."""

    def __init__(
        self, variants: Sequence[Variant], steps_per_block: dict[str, int], settings: Settings, limit_s: float
    ) -> None:
        self._variants = variants
        self._least_steps = min(steps_per_block.values())
        self._settings = settings
        self._limit_s = limit_s
        self._due_s = limit_s if settings.share_s is None else min(settings.share_s, limit_s)
        self._next_look = 1

    def is_due(self, elapsed_s: float) -> bool:
        """Whether the rule must be evaluated now: the share of a budget is over, or the time limit is reached."""
        return elapsed_s >= self._due_s

    def reason(self, blocks: Sequence[Block], elapsed_s: float) -> StopReason | None:
        """Return why the pass is over after these blocks, or None if it goes on."""
        is_alone = len(self._variants) == 1
        count = len(blocks) if is_alone else len(blocks) // 4
        if count < self._next_look and not self.is_due(elapsed_s):
            return None
        if self.is_due(elapsed_s):
            self._due_s = self._limit_s
        self._next_look = int(1.2 * count) + 1
        values = stats.block_times_s(blocks, self._variants[0].name) if is_alone else stats.quad_ratios(blocks)
        samples = len(blocks) // len(self._variants) * self._least_steps
        return stop_reason(values, samples=samples, elapsed_s=elapsed_s, settings=self._settings, limit_s=self._limit_s)


def _one_round(
    turns: Sequence[Variant],
    clock: Clock,
    gate: HostGate,
    steps_per_block: dict[str, int],
    reference: Callable[[float], float | None],
    *,
    is_slow: bool,
) -> tuple[list[Block], bool]:
    """Return the blocks of a round, and whether the host was slow before them (`is_slow`) or after one of them."""
    blocks = []
    for variant in turns:
        variant.select()
        cpu_now = issuing_clock(clock)
        cpu_before = cpu_now()
        steps = [timed_step(variant.step, clock) for _ in range(steps_per_block[variant.name])]
        whole_cpu_s = (cpu_now() - cpu_before) / 1e9
        issued_s = round(median(step.issued_s for step in steps), 9)
        cpu_s = median(step.cpu_s for step in steps) if clock.is_asynchronous else whole_cpu_s / len(steps)
        samples_s = tuple(step.took_s for step in steps)
        blocks.append(Block(variant.name, samples_s, issued_s, round(cpu_s, 9), reference(sum(samples_s))))
        is_slow = gate.is_slow() or is_slow
    return blocks, is_slow


def steps_in(seconds: float, step_s: float) -> int:
    """Return how many steps of `step_s` take about `seconds`: at least one."""
    return max(1, round(seconds / step_s))


def measure_throughput(
    variant: Variant,
    clock: DeviceClock,
    gate: HostGate,
    blocks: tuple[Block, ...],
    step_s: float,
    *,
    slow_s: float = 0.05,
) -> tuple[BackToBack, ...]:
    """Return runs of steps with one synchronisation at the end.

    No new runs are made where latency blocks are such runs: on the CPU, where a step is over when it returns, and for
    slow steps, since then a block has a single step.
    """
    if clock.is_asynchronous and step_s < slow_s:
        return back_to_back(variant, clock, gate, step_s=step_s)
    own = [block.samples_s for block in blocks if block.variant == variant.name]
    return tuple(BackToBack(len(samples_s), sum(samples_s)) for samples_s in own)


def back_to_back(
    variant: Variant,
    clock: Clock,
    gate: HostGate,
    *,
    step_s: float,
    runs: int = 7,
    run_s: float = 0.02,
    budget_s: float = 0.15,
) -> tuple[BackToBack, ...]:
    """Time runs of many steps with one synchronisation at the end: throughput as a training loop sees it.

    A run takes about `run_s`, but has at least three steps (two if they are slow), so that the host can run ahead of
    the device. There are from two to `runs` runs, as many as `budget_s` allows. Each run has its wall time, the device
    time of its steps, and the host's time until the first step returned.

    If the gate finds the host slow after a run, the run is set aside, the gate waits, steps are taken until they are
    steady on the cores that it chose, and the run is made again. These runs and waits may take as long as `budget_s`.
    After that all runs count, and say that the host was slow.
    """
    variant.select()
    steps = max(3 if 6 * step_s <= budget_s else 2, steps_in(run_s, step_s))
    runs = max(2, min(runs, steps_in(budget_s, steps * step_s)))
    measured: list[BackToBack] = []
    lost_s = 0.0
    while len(measured) < runs:
        clock.synchronize()
        start = clock.now_ns()
        began = clock.mark()
        variant.step()
        returned = clock.now_ns()
        for _ in range(steps - 1):
            variant.step()
        ended = clock.mark()
        clock.synchronize()
        elapsed_s = (clock.now_ns() - start) / 1e9
        is_slow = gate.is_slow()
        if is_slow and lost_s < budget_s:
            gate.wait(budget_s - lost_s)
            step_until_steady(variant, clock)
            lost_s += (clock.now_ns() - start) / 1e9
            continue
        device_s, host_s = clock.device_time_s(began, ended), (returned - start) / 1e9
        measured.append(BackToBack(steps, elapsed_s, device_s, host_s, is_slow))
    return tuple(measured)
