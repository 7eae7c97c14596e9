"""Change points: what is found, what is not, and series that leave little to find."""

from __future__ import annotations

import math

import numpy as np
import pytest

from torchzoo.analysis.change_points import (
    change_points,
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


@pytest.mark.parametrize(
    ("values", "options", "found"),
    [
        (noisy((1.0, 20), (1.1, 15), (0.95, 20), (1.0, 25)), {}, [20, 35, 55]),
        (noisy((1.0, 25), (1.05, 5), (1.0, 25)), {}, [25, 30]),  # a bump that ends where it began
        (noisy((1.0, 90), (1.04, 110), (1.0, 140), (1.05, 25)), {}, [90, 200, 340]),
        (noisy((1.0, 90), (1.04, 110), (1.0, 140), (1.05, 25)), {"window": 20}, [90, 200, 340]),
        (noisy((1.0, 40), (1.03, 2)), {}, [40]),
        (noisy((1.0, 40), (1.03, 1)), {"least_length": 1}, [40]),
        ([1.0] * 10 + [5.0] + [1.0] * 10, {}, []),  # a single outlier
        ([0.3] * 20 + [0.1 + 0.2] * 20, {}, []),  # rounding
        ([], {}, []),
        ([1.0, 2.0, 3.0], {}, []),
        ([math.nan] * 9, {}, []),
        (noisy((1.0, 30), (1.02, 30), (1.10, 30)), {}, [30, 60]),
        (noisy((1.0, 30), (1.02, 30), (1.10, 30)), {"least_magnitude": 0.05}, [60]),
        ([1 / value for value in noisy((1.0, 30), (1.02, 30), (1.10, 30))], {"least_magnitude": 0.05}, [60]),
        ([1e-6 * value for value in noisy((1.0, 40), (1.03, 20))], {}, [40]),  # in another unit
    ],
)
def test_steps_are_found_where_they_are(values: list[float], options: dict[str, float], found: list[int]) -> None:
    assert places(values, **options) == found


def test_a_step_between_constants_as_memory_makes_it_is_certain() -> None:
    (point,) = change_points([2.0**30] * 5 + [2.0**30 + 2**20] * 3)
    assert (point.index, point.p_value) == (5, 0.0)
    assert point.ratio.low == point.ratio.value == point.ratio.high == pytest.approx(1 + 2**-10)


def test_missing_values_are_left_out_and_places_are_those_of_the_series() -> None:
    values = noisy((1.0, 30), (1.05, 20))
    values[3] = values[29] = values[30] = math.nan
    assert places(values) == [31]


def test_quiet_series_have_few_change_points() -> None:
    found = sum(bool(places(noisy((1.0, 60), seed=seed))) for seed in range(100))
    assert found <= 4  # benchmarks/change_points.py: 1% of them


# --- the parts ---


def test_student_s_t_of_two_pieces() -> None:
    # t = 3 / sqrt(1 / 3 + 1 / 3) = 3.674 with 4 degrees of freedom; from a table of t: 0.02132
    assert t_test(np.array([1.0, 2, 3]), np.array([4.0, 5, 6])) == pytest.approx(0.02132, abs=1e-5)
    assert t_test(np.array([1.0]), np.array([2.0])) == 1.0
