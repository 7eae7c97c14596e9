"""Means over cases and their intervals, on ratios with known answers."""

from __future__ import annotations

import math

import numpy as np
import pytest

from torchzoo.analysis.means import at_least_1, case_ratio, geomean, geomean_of, inverse, mean, quotient, share
from torchzoo.stats import Estimate, t_quantile


def test_geomean_is_over_the_cases_medians_and_its_interval_over_cases() -> None:
    estimate = geomean([[1.0, 1.0, 9.0], [4.0, 4.0, 4.0]])
    assert estimate.value == pytest.approx(2.0)
    assert (estimate.count, estimate.confidence) == (6, 0.95)
    assert math.log(estimate.high / 2.0) == pytest.approx(t_quantile(0.95, 1) * math.log(2.0))
    one = geomean([[1.9, 2.0, 2.1] * 20])
    assert 1.9 <= one.low <= one.value == 2.0 <= one.high <= 2.1
    many = geomean([[2.0 + 0.01 * k] * 5 for k in range(-10, 11)])
    assert many.low < 2.0 < many.high
    assert many.relative_half_width < 0.03


@pytest.mark.parametrize("samples", [[], [[]], [[1.0], []], [[1.0, 0.0]]])
def test_geomean_refuses_what_has_none(samples: list[list[float]]) -> None:
    with pytest.raises(ValueError, match="positive"):
        geomean(samples)


@pytest.mark.parametrize("models", [3, 5, 8, 15])
@pytest.mark.parametrize("modes", [1, 2])
def test_the_interval_holds_the_true_mean_of_the_models_95_times_in_100(models: int, modes: int) -> None:
    """Of 2,000 draws, 95% are held with an error of 0.5 points; a percentile bootstrap of 8 models holds 88%."""
    generator = np.random.default_rng(models)
    held = 0
    for _ in range(2000):
        of_models = generator.normal(0.2, 0.3, models)
        logs = of_models[:, None] + generator.normal(0.0, 0.05, (models, modes))
        cases = [
            case_ratio([[float(np.exp(log))]], cluster=str(number)) for number, some in enumerate(logs) for log in some
        ]
        found = geomean_of(cases)
        held += found.low <= math.exp(0.2) <= found.high
    assert 0.935 <= held / 2000 <= 0.965


def test_a_models_cases_count_together() -> None:
    def interval(clusters: str) -> Estimate:
        values = [1.0, 1.0, 2.0, 2.0, 3.0, 3.0, 4.0, 4.0]
        return geomean_of([case_ratio([[v] * 5], cluster=c) for v, c in zip(values, clusters, strict=True)])

    together, apart = interval("aabbccdd"), interval("abcdefgh")
    assert together.value == pytest.approx(apart.value)
    assert together.high - together.low > 1.2 * (apart.high - apart.low)


def test_of_a_single_model_only_what_varies_within_its_cases_is_known() -> None:
    one, other = (case_ratio([[low] * 9, [high] * 9], cluster="a") for low, high in ((1.9, 2.1), (3.9, 4.1)))
    both = geomean_of([one, other])
    assert both.value == pytest.approx(math.sqrt(one.own.value * other.own.value))
    reaches = [math.log(case.own.high / case.own.value) for case in (one, other)]
    assert math.log(both.high / both.value) == pytest.approx(math.hypot(*reaches) / 2)
    assert geomean_of([one]) == one.own
    few = geomean_of([case_ratio([[2.0, 2.1, 2.2]], cluster="a")] * 2)
    assert few.confidence == 0.75


def test_a_ratio_of_two_cases_that_stand_alone_is_as_wide_as_both() -> None:
    one, other = (case_ratio([[low] * 9, [high] * 9], cluster="a") for low, high in ((1.9, 2.1), (3.9, 4.1)))
    ratio = geomean_of([quotient(one, other)])
    assert ratio.high == pytest.approx(one.own.high / other.own.low)
    assert geomean_of([inverse(one)]).low == pytest.approx(1 / one.own.high)


def test_a_mean_of_models_has_an_interval_that_narrows_with_their_number() -> None:
    few, many = mean([0.2, 0.4, 0.9]), mean([0.2, 0.4, 0.9] * 30)
    assert few.value == many.value == pytest.approx(0.5)
    assert few.high - few.value == pytest.approx(t_quantile(0.95, 2) * math.sqrt(0.13 / 3))
    assert (mean([0.2, 0.4, 0.9], least=0.0).low, mean([0.2, 0.4, 0.9], most=1.0).high) == (0.0, 1.0)
    assert 0.4 < many.low < 0.5 < many.high < 0.6
    assert (few.confidence, few.count) == (0.95, 3)
    one = mean([0.7])
    assert (one.low, one.value, one.high, one.count, one.confidence) == (0.7, 0.7, 0.7, 1, 0.0)
    with pytest.raises(ValueError, match="needs values"):
        mean([])


def test_a_share_of_models_is_never_sure() -> None:
    every = share([1.0] * 20)
    assert (every.value, every.high) == (1.0, 1.0)
    assert every.low == pytest.approx(0.8389, abs=1e-4)  # Wilson's interval of 20 of 20
    some = share([1.0] * 15 + [0.0] * 5)
    assert (some.low, some.high) == (pytest.approx(0.5313, abs=1e-4), pytest.approx(0.8881, abs=1e-4))
    with pytest.raises(ValueError, match="needs values"):
        share([])


def test_a_slowdown_that_counts_as_1_does_so_in_the_value_and_in_its_interval() -> None:
    slow, around, fast = (
        at_least_1(case_ratio(processes, cluster=str(number)))
        for number, processes in enumerate(([[0.5], [0.6], [0.7]], [[0.5], [1.1], [2.0]], [[2.0], [2.1], [2.2]]))
    )
    assert geomean_of([slow]).value == 1.0
    assert geomean_of([around]).low == 1.0 < geomean_of([around]).high
    assert geomean_of([slow, fast]).value == pytest.approx(geomean_of([fast]).value ** 0.5)
