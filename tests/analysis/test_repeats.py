"""Several processes of one case: honest intervals, and the noise floor."""

from __future__ import annotations

import json
import math
import random
from collections.abc import Callable
from pathlib import Path

import pytest

from examples import INDUCTOR, in_turns, measured, record, results_of, run_of, variant_result
from in_this_process import torchzoo
from kept_runs import keep
from repeated_runs import FAILED, process
from torchzoo import stats
from torchzoo.analysis.figures import case_figures
from torchzoo.record import Block, Measured, Record, Skipped
from torchzoo.report.noise import more_time, noise_of
from torchzoo.report.remarks import what_failed


def processes(*steps_s: float) -> list[Record]:
    return [record(process(step_s, within=0.01), repeat=repeat) for repeat, step_s in enumerate(steps_s)]


# --- statistics ---


@pytest.mark.parametrize(("degrees", "t"), [(1, 12.706), (2, 4.303), (4, 2.776), (7, 2.365), (30, 2.042)])
def test_t_is_that_of_the_tables(degrees: int, t: float) -> None:
    assert stats.t_quantile(0.95, degrees) == pytest.approx(t, abs=5e-4)
    assert stats.t_coverage(t, degrees) == pytest.approx(0.95, abs=1e-4)


def test_far_tails_of_t() -> None:
    assert stats.t_quantile(0.999, 4) == pytest.approx(8.610, abs=5e-4)
    assert 1 - stats.t_coverage(50.0, 3) == pytest.approx(1.76e-5, rel=0.01)


def lognormal(generator: random.Random) -> float:
    return generator.lognormvariate(0.0, 0.05)


def two_groups(generator: random.Random) -> float:
    """Memory laid out one way or the other: half of the processes take 10% longer. The mean of logs is the truth."""
    return math.exp(math.log(1.1) * (generator.choice((0.0, 1.0)) - 0.5)) * generator.lognormvariate(0.0, 0.01)


def some_slow(generator: random.Random) -> float:
    """One process in five takes half as long again."""
    return math.exp(math.log(1.5) * ((generator.random() < 0.2) - 0.2)) * generator.lognormvariate(0.0, 0.02)


@pytest.mark.parametrize(
    ("draw", "count", "least"),
    [
        *((lognormal, count, 0.93) for count in (4, 5)),  # 95% less two standard errors
        # Where all processes fall in one group none of them can know of the other: in 1 of 16 trials, or, of one slow
        # process in five, in 0.8**5 of them.
        (two_groups, 5, 0.90),
        (some_slow, 5, 0.60),
    ],
)
def test_what_differs_between_processes_is_in_the_interval(
    draw: Callable[[random.Random], float], count: int, least: float
) -> None:
    generator = random.Random(11)
    trials, held, held_by_pooling = 800, 0, 0
    for _ in range(trials):
        drawn = []
        for _ in range(count):
            center = draw(generator)
            drawn.append([center * generator.lognormvariate(0.0, 0.01) for _ in range(11)])
        held += not stats.processes_estimate(drawn).excludes(1.0)
        held_by_pooling += not stats.median_estimate([value for one in drawn for value in one]).excludes(1.0)
    assert held / trials >= least
    if draw is lognormal:
        assert held_by_pooling / trials < 0.7  # what it would be without


def test_the_figure_is_the_middle_of_the_processes_and_the_interval_theirs() -> None:
    row = case_figures(processes(0.100, 0.103, 0.101, 0.102))
    assert row.processes == 4
    assert row.eager.latency_s.value == pytest.approx((0.100 * 0.102 * 0.101 * 0.103) ** (1 / 4))
    assert row.eager.latency_s.count == 4
    own = case_figures(processes(0.1))
    assert row.eager.latency_s.relative_half_width > 2 * own.eager.latency_s.relative_half_width
    assert row.record.case.repeat == 2  # the middle one stands for memory and the like


def test_one_process_is_what_it_was_and_none_is_an_error() -> None:
    [single] = processes(0.1)
    one = case_figures([single])
    assert one.processes == 1
    assert isinstance(single.outcome, Measured)
    assert one.eager.latency_s == stats.latency_s(single.outcome.blocks, "eager")
    assert case_figures([single, record(FAILED, repeat=1)]) == one
    with pytest.raises(ValueError, match="no measured record"):
        case_figures([record(FAILED)])


def test_speedups_of_processes_that_disagree_are_wide() -> None:
    def candidate(share: float, repeat: int) -> Record:
        return record(in_turns(0.2, 0.2 * share), backend=INDUCTOR, repeat=repeat)

    row = case_figures([candidate(share, repeat) for repeat, share in enumerate((0.50, 0.50, 0.52, 0.52))])
    assert row.speedup is not None
    assert row.speedup.value == pytest.approx(1 / math.sqrt(0.50 * 0.52))
    assert row.speedup.low < 1 / 0.52 < 1 / 0.50 < row.speedup.high


# --- tables and summary ---


def test_repeats_skipped_for_the_same_reason_are_one_line() -> None:
    records = [record(Skipped(reason="no way"), repeat=repeat) for repeat in range(3)]
    assert what_failed(results_of(records)[0]) == ["3 of 3 processes skipped: no way"]


# --- the noise floor ---


def test_noise_knows_between_and_within() -> None:
    [found] = noise_of(run_of(processes(0.100, 0.110, 0.100, 0.110)))
    spread = math.log(1.1) / math.sqrt(3)
    assert found.between == pytest.approx(spread)
    assert found.floor == pytest.approx(math.exp(stats.t_quantile(0.95, 3) * spread * math.sqrt(0.5)) - 1)
    assert found.within == pytest.approx(0.01)
    assert found.processes == 4
    assert found.sees is not None
    assert found.sees > found.floor  # wrong in one of a hundred, not in five
    [quiet] = noise_of(run_of(processes(0.1, 0.1, 0.1)))
    assert quiet.sees == 0.01


def slow_rounds(spread: float, rounds: int, *, seed: int = 3) -> Measured:
    """Rounds of 4 steps of 3.5 s, whose ratios of eager to the candidate are lognormal."""
    generator = random.Random(seed)
    blocks = []
    for _ in range(rounds):
        of = {"eager": 3.5, "candidate": 3.5 * generator.lognormvariate(0.0, spread)}
        blocks += [Block(name, (of[name],)) for name in ("eager", "candidate", "candidate", "eager")]
    return measured(blocks=tuple(blocks), variants={"eager": variant_result(), "candidate": variant_result()})


def test_what_a_longer_time_limit_would_give_is_what_it_gives() -> None:
    few = more_time(slow_rounds(0.02, 3))
    assert few is not None
    assert (few.rounds, few.took_s) == (3, pytest.approx(42, rel=0.05))
    assert few.took_s < few.limit_s <= 1.1 * 4 * few.took_s
    assert more_time(slow_rounds(0.0, 3)).limit_s == 84  # type: ignore[union-attr]  six rounds, for 95%
    assert more_time(slow_rounds(0.0, 1)) is None
    known = more_time(slow_rounds(0.02, 50))
    assert known is not None
    rounds = round(known.limit_s / known.took_s * known.rounds)
    widths = [stats.speedup(slow_rounds(0.02, rounds, seed=seed).blocks).relative_half_width for seed in range(20)]
    assert known.half_width == pytest.approx(sum(widths) / len(widths), rel=0.3)


def test_no_change_stays_below_the_noise_floor_95_times_in_100() -> None:
    generator = random.Random(5)
    trials, below = 600, 0
    for _ in range(trials):
        sides = [processes(*(0.1 * generator.lognormvariate(0.0, 0.03) for _ in range(3))) for _ in range(2)]
        found, other = (noise_of(run_of(side))[0] for side in sides)
        assert found.floor is not None
        below += abs(math.log(other.latency_s / found.latency_s)) < math.log1p(found.floor)
    assert 0.92 < below / trials < 0.98


def test_noise_of_two_processes_hides_everything_and_of_one_is_not_known(tmp_path: Path) -> None:
    path = keep(tmp_path / "run", [*processes(0.1, 0.2), record(model="b")])
    two, one = json.loads(torchzoo("report", "--noise", path, "--format", "json").stdout)
    assert (two["processes"], two["floor"] > 1) == (2, True)
    assert (one["processes"], one["floor"]) == (1, None)
    assert "| over 100% | over 100% |" in torchzoo("report", "--noise", path, "--format", "md").stdout
