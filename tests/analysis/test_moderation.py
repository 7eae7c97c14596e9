"""Errors of few pairs that all cases of a comparison tell together, on noise with known answers."""

from __future__ import annotations

import math
import random
from collections.abc import Callable
from statistics import variance

import pytest

from torchzoo.analysis.moderation import (
    CASES_FROM,
    MOST_SHARED_DEGREES,
    PROCESSES_FROM,
    digamma,
    moderated,
    shared_noise,
    trigamma,
)
from torchzoo.analysis.significance import LogRatio, holm, pair_ratio

CASES, PAIRS = 24, 5
EULER = 0.5772156649015329

#: Makes one difference of a pair, without any change.
Noise = Callable[[], float]


def ratios_of(noises: list[Noise], *, planted: float = 0.0) -> list[LogRatio]:
    """The ratio of each case, whose processes came in turns; in the first case `planted` is added."""
    found = []
    for place, noise in enumerate(noises):
        change = planted if place == 0 else 0.0
        sides = [([1.0], [math.exp(noise() + change)]) for _ in range(PAIRS)]
        ratio = pair_ratio([was for was, _ in sides], [now for _, now in sides])
        assert ratio is not None
        found.append(ratio)
    return found


def alike(generator: random.Random, deviation: float = 0.02) -> list[Noise]:
    return [lambda: generator.gauss(0, deviation)] * CASES


def of_many_kinds(generator: random.Random) -> list[Noise]:
    deviations = [0.02 * math.exp(generator.gauss(0, 0.6)) for _ in range(CASES)]
    return [lambda one=one: generator.gauss(0, one) for one in deviations]  # type: ignore[misc]


def one_is_noisy(generator: random.Random) -> list[Noise]:
    return [*alike(generator, 0.01)[:-1], lambda: generator.gauss(0, 0.1)]


def together(ratios: list[LogRatio]) -> list[LogRatio]:
    return [one for one in moderated(ratios, [PAIRS] * len(ratios)) if one is not None]


def share_of_alarms(noises: Callable[[random.Random], list[Noise]], comparisons: int) -> float:
    """In what share of comparisons without a change at least one case is called different at 1%."""
    generator = random.Random(3)
    alarms = 0
    for _ in range(comparisons):
        alarms += min(holm([one.p_value() for one in together(ratios_of(noises(generator)))])) < 0.01
    return alarms / comparisons


@pytest.mark.parametrize("noises", [alike, of_many_kinds, one_is_noisy])
def test_of_a_hundred_comparisons_without_a_change_one_finds_one(
    noises: Callable[[random.Random], list[Noise]],
) -> None:
    assert share_of_alarms(noises, 600) <= 0.025  # 1% are expected; more than 2.5% come in 0.1% of all series


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
    noise = shared_noise(ratios_of(alike(generator) * 40))
    assert noise is not None
    assert math.sqrt(noise.variance) == pytest.approx(0.02, rel=0.05)
    assert noise.degrees == pytest.approx(MOST_SHARED_DEGREES)  # cases that do not differ


def test_cases_with_noise_of_their_own_share_little() -> None:
    generator = random.Random(6)
    # Variances that follow the assumed law with 4 degrees of freedom: 4 * 0.02^2 / (chi-squared with 4).
    deviations = [0.02 * math.sqrt(4 / generator.gammavariate(2, 2)) for _ in range(2000)]
    noise = shared_noise(ratios_of([lambda one=one: generator.gauss(0, one) for one in deviations]))  # type: ignore[misc]
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
    assert moderated([*ratios, *noisy], processes) == [*together(ratios), *noisy]
    assert moderated(ratios, [PROCESSES_FROM - 1] * CASES) == ratios


def test_a_case_without_any_noise_gets_that_of_the_others() -> None:
    still = LogRatio(value=0.01, error=0.0, degrees=PAIRS - 1)
    after = together([*ratios_of(alike(random.Random(12))), still])
    assert 0 < after[-1].error < 0.02
    assert shared_noise([still] * CASES) is None


def test_pairs_need_two_of_each() -> None:
    one, two = [[1.0]], [[1.0], [1.1]]
    assert pair_ratio(one, one) is None
    assert pair_ratio(one, two) is None
    assert pair_ratio(two, two) == LogRatio(value=0.0, error=0.0, degrees=1, count=2)


def test_digamma_and_trigamma_at_known_places() -> None:
    assert digamma(1) == pytest.approx(-EULER, rel=1e-9)
    assert digamma(0.5) == pytest.approx(-EULER - 2 * math.log(2), rel=1e-9)
    assert trigamma(1) == pytest.approx(math.pi**2 / 6, rel=1e-9)
    assert trigamma(0.5) == pytest.approx(math.pi**2 / 2, rel=1e-9)
    assert trigamma(30) == pytest.approx(sum(1 / (30 + k) ** 2 for k in range(200000)), rel=1e-3)
