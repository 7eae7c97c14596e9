"""The tests behind verdicts, on processes with known answers: ratios, their errors, and the variance cases share."""

from __future__ import annotations

import math
import random
from collections.abc import Callable
from statistics import stdev, variance

import pytest

from torchzoo.analysis.judge import (
    CASES_FROM,
    MOST_SHARED_DEGREES,
    PAIRS_FROM,
    PROCESSES_FROM,
    LogRatio,
    log_ratio,
    pair_ratio,
    shared_variance,
    with_shared_variance,
)
from torchzoo.stats import holm


def logs(spread: float, *shares: float) -> list[float]:
    """Medians of processes, whose logarithms are these shares of `spread`."""
    return [math.exp(spread * share) for share in shares]


def test_several_processes_on_both_sides_are_tested_by_welchs_t() -> None:
    # By hand: variances 1 and 4 (of 0.01 squared), 3 processes a side; degrees (1/3 + 4/3)**2 / (1/9/2 + 16/9/2) = 2.9.
    ratio = log_ratio(logs(0.01, -1, 0, 1), logs(0.01, 8, 10, 12))
    assert ratio.value == pytest.approx(0.10)
    assert ratio.error == pytest.approx(0.01 * math.sqrt(5 / 3))
    assert ratio.degrees == 2  # rounded down
    t = 0.10 / ratio.error
    assert ratio.p_value() == pytest.approx(1 - t / math.sqrt(2 + t * t))  # Student's t with 2 degrees, closed form


def drifting(count: int, ratio: float) -> tuple[list[float], list[float]]:
    """Processes in turns on a machine whose speed drifts by a half, with noise of 1% in each."""
    generator = random.Random(7)
    speeds = [1 + 0.5 * place / count for place in range(count)]
    base, candidate = ([speed * generator.lognormvariate(0, 0.01) for speed in speeds] for _ in range(2))
    return base, [ratio * value for value in candidate]


def test_many_processes_in_turns_are_tested_as_pairs() -> None:
    base, candidate = drifting(PAIRS_FROM, 1.05)
    apart, in_turns = (log_ratio(base, candidate, in_turns=turns) for turns in (False, True))
    assert in_turns.value == pytest.approx(apart.value)
    assert in_turns.degrees == PAIRS_FROM - 1
    differences = [math.log(now / was) for was, now in zip(base, candidate, strict=True)]
    assert in_turns.error == pytest.approx(stdev(differences) / math.sqrt(PAIRS_FROM))
    assert in_turns.p_value() < 1e-4 < 0.1 < apart.p_value()  # the drift hides 5% from Welch's test


def test_few_processes_in_turns_and_uneven_numbers_are_not_pairs() -> None:
    base, candidate = drifting(PAIRS_FROM, 1.05)
    for sides in ((base[1:], candidate[1:]), (base, candidate[1:])):
        assert log_ratio(*sides, in_turns=True) == log_ratio(*sides)


def test_pairs_without_a_difference_are_called_one_in_a_hundred_times() -> None:
    generator = random.Random(11)
    called = 0
    for _ in range(2000):
        speeds = [generator.lognormvariate(0, 0.1) for _ in range(PAIRS_FROM)]
        sides = [[speed * generator.lognormvariate(0, 0.02) for speed in speeds] for _ in range(2)]
        ratio = log_ratio(*sides, in_turns=True)
        called += ratio.p_value() < 0.01
    assert called <= 32  # 20 are expected; more than 32 come in 0.5% of all series


def test_where_one_side_has_one_process_the_other_s_spread_stands_for_both() -> None:
    many, one = logs(0.02, -1, 0, 1, 0), [1.1]
    spread = stdev(0.02 * share for share in (-1, 0, 1, 0))
    for base, candidate, sign in ((many, one, 1), (one, many, -1)):
        ratio = log_ratio(base, candidate)
        assert ratio.value == pytest.approx(sign * math.log(1.1))
        assert ratio.error == pytest.approx(spread * math.sqrt(1 + 1 / 4))
        assert ratio.degrees == 3


def test_slack_is_taken_off_the_difference_either_way() -> None:
    for value in (0.2, -0.2):
        ratio = LogRatio(value=value, error=0.05, degrees=None)
        assert ratio.p_value() == pytest.approx(6.334e-5, rel=1e-3)  # 4 standard errors
        assert ratio.p_value(0.1) == pytest.approx(0.0455, rel=1e-3)  # 2 are left
        assert ratio.p_value(0.2) == ratio.p_value(math.inf) == 1.0
        assert LogRatio(value=value, error=0.0, degrees=4).p_value() == 0.0


def test_the_interval_is_around_the_ratio_and_is_wide_for_few_processes() -> None:
    known = LogRatio(value=math.log(2), error=0.1, degrees=None).interval()
    assert known.value == pytest.approx(2.0)
    assert (known.low, known.high) == pytest.approx((2 * math.exp(-0.195996), 2 * math.exp(0.195996)), rel=1e-5)
    few = LogRatio(value=math.log(2), error=0.1, degrees=1).interval()
    assert few.high == pytest.approx(2 * math.exp(1.2706), rel=1e-4)
    assert math.isinf(LogRatio(value=0.0, error=100.0, degrees=1).interval().high)


# --- shared variance ---

CASES, PAIRS = 24, 5

#: Makes one difference of a pair, without any change.
Noise = Callable[[], float]


def ratios_of(noises: list[Noise], *, planted: float = 0.0) -> list[LogRatio]:
    """The ratio of each case, whose processes came in turns; in the first case `planted` is added."""
    found = []
    for place, noise in enumerate(noises):
        change = planted if place == 0 else 0.0
        found.append(pair_ratio([1.0] * PAIRS, [math.exp(noise() + change) for _ in range(PAIRS)]))
    return found


def alike(generator: random.Random, deviation: float = 0.02) -> list[Noise]:
    return [lambda: generator.gauss(0, deviation)] * CASES


def one_is_noisy(generator: random.Random) -> list[Noise]:
    return [*alike(generator, 0.01)[:-1], lambda: generator.gauss(0, 0.1)]


def together(ratios: list[LogRatio]) -> list[LogRatio]:
    shared = with_shared_variance(ratios, [PAIRS] * len(ratios))
    return [one or own for one, own in zip(shared, ratios, strict=True)]


def test_a_change_is_found_that_each_case_s_own_pairs_do_not_show() -> None:
    generator = random.Random(4)
    found = {"own": 0, "together": 0}
    for _ in range(100):
        ratios = ratios_of(alike(generator), planted=0.06)
        found["own"] += holm([one.p_value() for one in ratios])[0] < 0.01
        found["together"] += holm([one.p_value() for one in together(ratios)])[0] < 0.01
    assert found["together"] > 85 > 50 > found["own"]


def test_the_noise_that_all_share_is_found() -> None:
    generator = random.Random(5)
    noise = shared_variance(ratios_of(alike(generator) * 40))
    assert noise is not None
    assert math.sqrt(noise.variance) == pytest.approx(0.02, rel=0.05)
    assert noise.degrees == pytest.approx(MOST_SHARED_DEGREES)  # cases that do not differ


def test_cases_with_noise_of_their_own_share_little() -> None:
    generator = random.Random(6)
    # Variances that follow the assumed law with 4 degrees of freedom: 4 * 0.02^2 / (chi-squared with 4).
    deviations = [0.02 * math.sqrt(4 / generator.gammavariate(2, 2)) for _ in range(2000)]
    noise = shared_variance(ratios_of([lambda one=one: generator.gauss(0, one) for one in deviations]))  # type: ignore[misc]
    assert noise is not None
    assert noise.degrees == pytest.approx(4, rel=0.15)
    assert math.sqrt(noise.variance) == pytest.approx(0.02, rel=0.05)


def test_a_case_that_is_noisier_than_its_like_keeps_its_own_error() -> None:
    ratios = ratios_of(one_is_noisy(random.Random(8)))
    after = together(ratios)
    assert after[-1] == ratios[-1]
    assert all(now.degrees > PAIRS - 1 for now in after[:-1] if now.degrees is not None)


def test_errors_come_nearer_to_each_other_and_values_stay() -> None:
    ratios = ratios_of(alike(random.Random(9)))
    after = together(ratios)
    assert [one.value for one in after] == [one.value for one in ratios]
    spreads = [variance([math.log(one.error) for one in some]) for some in (ratios, after)]
    assert spreads[1] < spreads[0] / 10


def test_few_cases_tell_nothing_together() -> None:
    ratios = ratios_of(alike(random.Random(10)))[: CASES_FROM - 1]
    assert together(ratios) == ratios
    assert together([]) == []


def test_cases_of_few_processes_keep_their_own_error_and_tell_nothing_of_the_others() -> None:
    ratios = ratios_of(alike(random.Random(13)))
    noisy = [LogRatio(value=0.0, error=1.0, degrees=2), None]
    processes = [*[PAIRS] * CASES, PROCESSES_FROM - 1, PROCESSES_FROM - 1]
    assert with_shared_variance([*ratios, *noisy], processes) == [*together(ratios), None, None]
    assert with_shared_variance(ratios, [PROCESSES_FROM - 1] * CASES) == [None] * CASES


def test_a_case_without_any_noise_gets_that_of_the_others() -> None:
    still = LogRatio(value=0.01, error=0.0, degrees=PAIRS - 1)
    after = together([*ratios_of(alike(random.Random(12))), still])
    assert 0 < after[-1].error < 0.02
    assert shared_variance([still] * CASES) is None
