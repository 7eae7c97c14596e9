"""Change points: what is found, what is not, and series that leave little to find."""

from __future__ import annotations

import math

import numpy as np
import pytest

from torchzoo.analysis.change_points import (
    best_split,
    change_points,
    distance_sums,
    t_test,
)


def noisy(*levels: tuple[float, int], cv: float = 0.005, seed: int = 0) -> list[float]:
    """Nights at these levels, each so many of them, with noise."""
    random = np.random.default_rng(seed)
    return [level * (1 + cv * random.standard_normal()) for level, count in levels for _ in range(count)]


def places(values: list[float], **options: float) -> list[int]:
    return [point.index for point in change_points(values, **options)]  # type: ignore[arg-type]


def test_a_step_is_found_where_it_is_with_its_size() -> None:
    (point,) = change_points(noisy((0.010, 40), (0.0103, 20)))
    assert point.index == 40
    assert point.ratio.low < 1.03 < point.ratio.high
    assert point.ratio.high - point.ratio.low < 0.01
    assert point.ratio.confidence == 0.95
    assert point.p_value < 1e-4
    assert point.mean_before == pytest.approx(0.010, rel=0.003)
    assert point.median_after == pytest.approx(0.0103, rel=0.003)
    assert point.ratio.value == pytest.approx(point.mean_after / point.mean_before)


def test_several_steps_up_and_down_are_found() -> None:
    assert places(noisy((1.0, 20), (1.1, 15), (0.95, 20), (1.0, 25))) == [20, 35, 55]


def test_a_bump_that_ends_where_it_began_is_found() -> None:
    assert places(noisy((1.0, 25), (1.05, 5), (1.0, 25))) == [25, 30]


def test_a_long_series_is_searched_in_windows_and_each_step_is_found_once() -> None:
    values = noisy((1.0, 90), (1.04, 110), (1.0, 140), (1.05, 25))
    assert places(values) == [90, 200, 340]
    assert places(values, window=20) == [90, 200, 340]


def test_old_values_do_not_change_what_is_found_in_new_ones() -> None:
    new = noisy((1.0, 60), (1.03, 20))
    assert [place - 150 for place in places([*noisy((3.0, 150), seed=1), *new]) if place > 150] == places(new)


def test_two_new_values_are_enough_and_one_is_not() -> None:
    assert places(noisy((1.0, 40), (1.03, 2))) == [40]
    assert 40 not in places(noisy((1.0, 40), (1.03, 1)))
    assert places(noisy((1.0, 40), (1.03, 1)), least_length=1) == [40]


def test_a_single_outlier_is_no_change() -> None:
    values = noisy((1.0, 50))
    values[20] *= 1.5
    assert places(values) == []
    assert places([1.0] * 10 + [5.0] + [1.0] * 10) == []


@pytest.mark.parametrize(
    "values", [[], [1.0], [1.0, 2.0], [1.0, 2.0, 3.0], [2.0] * 40, [0.1 + 0.2] * 7, [math.nan] * 9]
)
def test_where_there_is_nothing_to_find_nothing_is_found(values: list[float]) -> None:
    assert places(values) == []


def test_a_step_between_constants_as_memory_makes_it_is_certain() -> None:
    (point,) = change_points([2.0**30] * 5 + [2.0**30 + 2**20] * 3)
    assert (point.index, point.p_value) == (5, 0.0)
    assert point.ratio.low == point.ratio.value == point.ratio.high == pytest.approx(1 + 2**-10)


def test_rounding_is_no_change() -> None:
    assert places([0.3] * 20 + [0.1 + 0.2] * 20) == []


def test_missing_values_are_left_out_and_places_are_those_of_the_series() -> None:
    values = noisy((1.0, 30), (1.05, 20))
    values[3] = values[29] = values[30] = math.nan
    assert places(values) == [31]


@pytest.mark.parametrize("bad", [0.0, -1.0, math.inf])
def test_values_that_are_not_positive_numbers_are_refused(bad: float) -> None:
    with pytest.raises(ValueError, match="must be positive"):
        change_points([1.0, bad])


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"window": 3}, "no two sides"),
        ({"p_value": 0.0}, "between 0 and 1"),
        ({"p_value": 1.0}, "between 0 and 1"),
        ({"p_value": math.nan}, "between 0 and 1"),
        ({"least_magnitude": -0.1}, "0 or more"),
        ({"least_length": 0}, "1 or more"),
    ],
)
def test_options_out_of_range_are_refused(options: dict[str, float], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        change_points([1.0, 2.0], **options)  # type: ignore[arg-type]


def test_the_least_magnitude_leaves_small_steps_out_in_both_directions() -> None:
    values = noisy((1.0, 30), (1.02, 30), (1.10, 30))
    assert places(values) == [30, 60]
    assert places(values, least_magnitude=0.05) == [60]
    assert places([1 / value for value in values], least_magnitude=0.05) == [60]


def test_the_unit_of_the_series_does_not_matter() -> None:
    values = noisy((1.0, 40), (1.03, 20))
    assert places([1e-6 * value for value in values]) == places([1e9 * value for value in values]) == places(values)


def test_quiet_series_have_few_change_points() -> None:
    found = sum(bool(places(noisy((1.0, 60), seed=seed))) for seed in range(100))
    assert found <= 4  # benchmarks/change_points.py: 1% of them


# --- the parts ---


def slow_divergence(x: list[float], y: list[float]) -> float:
    """Matteson and James 2013, equations 5 and 7, as they are written, with exponent 1."""
    n, m = len(x), len(y)
    across = 2 / (n * m) * sum(abs(a - b) for a in x for b in y)
    within = [
        sum(abs(z[i] - z[k]) for i in range(len(z)) for k in range(i + 1, len(z))) / math.comb(len(z), 2)
        for z in (x, y)
    ]
    return n * m / (n + m) * (across - within[0] - within[1])


def test_the_best_split_is_that_of_the_papers_sums() -> None:
    values = noisy((1.0, 6), (1.4, 4), (1.1, 4), cv=0.1)
    start, end = 1, 13
    slow = {
        (place, right): slow_divergence(values[start:place], values[place:right])
        for place in range(start + 2, end - 1)
        for right in range(place + 2, end + 1)
    }
    assert best_split(distance_sums(np.array(values)), start, end, 2) == max(slow, key=lambda key: slow[key])


def test_student_s_t_of_two_pieces() -> None:
    # t = 3 / sqrt(1 / 3 + 1 / 3) = 3.674 with 4 degrees of freedom; from a table of t: 0.02132
    assert t_test(np.array([1.0, 2, 3]), np.array([4.0, 5, 6])) == pytest.approx(0.02132, abs=1e-5)
    assert t_test(np.array([1.0]), np.array([2.0])) == 1.0
