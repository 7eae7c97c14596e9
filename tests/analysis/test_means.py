"""Means over cases and their intervals, on ratios with known answers."""

from __future__ import annotations

import math

import numpy as np
import pytest

from torchzoo.analysis.means import at_least_1, case_ratio, geomean, geomean_of, inverse, mean, quotient, share
from torchzoo.stats import Estimate, median_estimate, processes_estimate, t_quantile


def test_geomean_is_over_the_cases_medians_and_its_interval_over_cases() -> None:
    estimate = geomean([[1.0, 1.0, 9.0], [4.0, 4.0, 4.0]] * 2)
    assert estimate.value == pytest.approx(2.0)
    assert (estimate.count, estimate.of, estimate.confidence) == (4, "models", 0.95)
    assert math.log(estimate.high / 2.0) == pytest.approx(t_quantile(0.95, 3) * math.log(2.0) / math.sqrt(3))
    many = geomean([[2.0 + 0.01 * k] * 5 for k in range(-10, 11)])
    assert many.low < 2.0 < many.high
    assert many.relative_half_width < 0.03


@pytest.mark.parametrize("count", [1, 2, 3])
def test_a_mean_of_fewer_than_four_has_no_interval(count: int) -> None:
    """Student's t of two models that are 10% apart reaches from 0.5 to 2; of two that differ tenfold to 10**13."""
    values = [1.0, 1.1, 10.0][:count]
    two_modes = [case_ratio([[value] * 9], cluster=str(value)) for value in values for _ in range(2)]
    for found, of in (
        (geomean_of(two_modes), "models"),
        (mean(values), "models"),
        (share([1.0] * count), "models"),
        (processes_estimate([[value] * 9 for value in values]), "processes"),
    ):
        if of == "processes" and count == 1:
            assert found == median_estimate([1.0] * 9)  # a process has an interval of its own
            continue
        assert (found.has_interval, found.low, found.high) == (False, found.value, found.value)
        assert not found.excludes(2.0)
        noun = of if count > 1 else {"models": "model", "processes": "process"}[of]
        assert found.why_no_interval == f"{count} {noun}: too few for an interval"
    assert geomean_of(two_modes[:1] * 4).count == 1  # cases of one model are one


@pytest.mark.parametrize("samples", [[], [[]], [[1.0], []], [[1.0, 0.0]]])
def test_geomean_refuses_what_has_none(samples: list[list[float]]) -> None:
    with pytest.raises(ValueError, match="positive"):
        geomean(samples)


@pytest.mark.parametrize("models", [4, 5, 8, 15])
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


def test_a_ratio_of_two_cases_that_stand_alone_is_as_wide_as_both() -> None:
    one, other = (case_ratio([[low] * 9, [high] * 9], cluster="a") for low, high in ((1.9, 2.1), (3.9, 4.1)))
    assert quotient(one, other).own.high == pytest.approx(one.own.high / other.own.low)
    assert inverse(one).own.low == pytest.approx(1 / one.own.high)


def test_a_mean_of_models_has_an_interval_that_narrows_with_their_number() -> None:
    values = [0.2, 0.4, 0.5, 0.9]
    few, many = mean(values), mean(values * 30)
    assert few.value == many.value == pytest.approx(0.5)
    assert few.high - few.value == pytest.approx(t_quantile(0.95, 3) * math.sqrt(0.26 / 3 / 4))
    assert (mean(values, least=0.1).low, mean(values, most=0.9).high) == (0.1, 0.9)
    assert 0.4 < many.low < 0.5 < many.high < 0.6
    assert (few.confidence, few.count) == (0.95, 4)
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
        at_least_1(case_ratio([ratios], cluster=str(number)))
        for number, ratios in enumerate(([0.5, 0.6, 0.7], [0.5, 1.1, 2.0], [2.0, 2.1, 2.2]))
    )
    assert slow.own.value == 1.0
    assert around.own.low == 1.0 < around.own.high
    assert geomean_of([slow, fast]).value == pytest.approx(geomean_of([fast]).value ** 0.5)
