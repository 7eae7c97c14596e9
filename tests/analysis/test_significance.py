"""The test behind a comparison's verdicts, on processes with known answers."""

from __future__ import annotations

import math
import random
from statistics import stdev

import pytest

from torchzoo.analysis.significance import PAIRS_FROM, LogRatio, holm, log_ratio
from torchzoo.stats import median_estimate


def steady(*medians: float) -> list[list[float]]:
    """Processes with these medians and no noise."""
    return [[value] * 3 for value in medians]


def logs(spread: float, *shares: float) -> list[list[float]]:
    """Processes whose medians' logarithms are these shares of `spread`."""
    return steady(*(math.exp(spread * share) for share in shares))


def test_several_processes_on_both_sides_are_tested_by_welchs_t() -> None:
    # By hand: variances 1 and 4 (of 0.01 squared), 3 processes a side; degrees (1/3 + 4/3)**2 / (1/9/2 + 16/9/2) = 2.9.
    ratio = log_ratio(logs(0.01, -1, 0, 1), logs(0.01, 8, 10, 12), assumed_spread=9.0)
    assert ratio is not None
    assert ratio.value == pytest.approx(0.10)
    assert ratio.error == pytest.approx(0.01 * math.sqrt(5 / 3))
    assert ratio.degrees == 2  # rounded down
    t = 0.10 / ratio.error
    assert ratio.p_value() == pytest.approx(1 - t / math.sqrt(2 + t * t))  # Student's t with 2 degrees, closed form


def drifting(count: int, ratio: float) -> tuple[list[list[float]], list[list[float]]]:
    """Processes in turns on a machine whose speed drifts by a half, with noise of 1% in each."""
    generator = random.Random(7)
    speeds = [1 + 0.5 * place / count for place in range(count)]
    base, candidate = ([speed * generator.lognormvariate(0, 0.01) for speed in speeds] for _ in range(2))
    return steady(*base), steady(*(ratio * value for value in candidate))


def test_many_processes_in_turns_are_tested_as_pairs() -> None:
    base, candidate = drifting(PAIRS_FROM, 1.05)
    apart, in_turns = (log_ratio(base, candidate, assumed_spread=9.0, in_turns=turns) for turns in (False, True))
    assert apart is not None
    assert in_turns is not None
    assert in_turns.value == pytest.approx(apart.value)
    assert in_turns.degrees == PAIRS_FROM - 1
    differences = [math.log(now[0] / was[0]) for was, now in zip(base, candidate, strict=True)]
    assert in_turns.error == pytest.approx(stdev(differences) / math.sqrt(PAIRS_FROM))
    assert in_turns.p_value() < 1e-4 < 0.1 < apart.p_value()  # the drift hides 5% from Welch's test


def test_few_processes_in_turns_and_uneven_numbers_are_not_pairs() -> None:
    base, candidate = drifting(PAIRS_FROM, 1.05)
    for sides in ((base[1:], candidate[1:]), (base, candidate[1:])):
        assert log_ratio(*sides, assumed_spread=9.0, in_turns=True) == log_ratio(*sides, assumed_spread=9.0)


def test_pairs_without_a_difference_are_called_one_in_a_hundred_times() -> None:
    generator = random.Random(11)
    called = 0
    for _ in range(2000):
        speeds = [generator.lognormvariate(0, 0.1) for _ in range(PAIRS_FROM)]
        sides = [steady(*(speed * generator.lognormvariate(0, 0.02) for speed in speeds)) for _ in range(2)]
        ratio = log_ratio(*sides, assumed_spread=9.0, in_turns=True)
        assert ratio is not None
        called += ratio.p_value() < 0.01
    assert called <= 32  # 20 are expected; more than 32 come in 0.5% of all series


def test_where_one_side_has_one_process_the_other_s_spread_stands_for_both() -> None:
    many, one = logs(0.02, -1, 0, 1, 0), steady(1.1)
    spread = stdev(0.02 * share for share in (-1, 0, 1, 0))
    for base, candidate, sign in ((many, one, 1), (one, many, -1)):
        ratio = log_ratio(base, candidate, assumed_spread=9.0)
        assert ratio is not None
        assert ratio.value == pytest.approx(sign * math.log(1.1))
        assert ratio.error == pytest.approx(spread * math.sqrt(1 + 1 / 4))
        assert ratio.degrees == 3


def test_one_process_a_side_is_judged_by_the_assumed_spread_and_its_own_interval() -> None:
    generator = random.Random(5)
    base, candidate = ([generator.lognormvariate(0.0, 0.05) for _ in range(20)] for _ in range(2))
    ratio = log_ratio([base], [candidate], assumed_spread=0.1)
    assert ratio is not None
    assert ratio.degrees is None
    own = [median_estimate(values) for values in (base, candidate)]
    within = [math.log(one.high / one.low) / (2 * 1.959964) for one in own]  # each interval is one of 95%
    assert ratio.error == pytest.approx(math.sqrt(2 * 0.1**2 + sum(error**2 for error in within)), rel=1e-6)
    assert log_ratio(steady(1.0), steady(1.1), assumed_spread=0.1) == LogRatio(
        value=pytest.approx(math.log(1.1)), error=pytest.approx(0.1 * math.sqrt(2)), degrees=None
    )


def test_a_single_value_a_side_can_not_be_judged() -> None:
    assert log_ratio([[1.0]], [[2.0] * 5], assumed_spread=0.1) is None
    assert log_ratio([[1.0] * 5], [[2.0]], assumed_spread=0.1) is None
    assert log_ratio([[1.0], [1.1]], [[2.0], [2.1]], assumed_spread=0.1) is not None


def test_an_allowance_is_taken_off_the_difference_either_way() -> None:
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


@pytest.mark.parametrize(("base", "candidate"), [(2, 2), (3, 3), (5, 5), (2, 5), (1, 4)])
def test_without_a_change_one_trial_in_twenty_is_significant(base: int, candidate: int) -> None:
    generator = random.Random(100 * base + candidate)
    trials, false_alarms = 2000, 0
    for _ in range(trials):
        sides = [[[generator.lognormvariate(0.0, 0.05)] for _ in range(count)] for count in (base, candidate)]
        ratio = log_ratio(*sides, assumed_spread=0.0)
        assert ratio is not None
        false_alarms += ratio.p_value() < 0.05
    assert false_alarms / trials <= 0.05 + 3 * math.sqrt(0.05 * 0.95 / trials)


def test_holm_keeps_the_order_of_the_tests_and_never_exceeds_one() -> None:
    assert holm([0.9, 0.001, 0.8]) == pytest.approx([1.0, 0.003, 1.0])
    assert holm([0.02, 0.02]) == pytest.approx([0.04, 0.04])
