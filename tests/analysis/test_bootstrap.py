"""Geometric means over cases and their bootstrap intervals, on ratios with known answers."""

from __future__ import annotations

import numpy as np
import pytest

from torchzoo.analysis.bootstrap import at_least_1, bootstrap, bootstrap_processes, geomean, geomean_of, mean
from torchzoo.stats import Estimate


def test_geomean_is_over_the_cases_medians_and_its_interval_over_cases_and_samples() -> None:
    estimate = geomean([[1.0, 1.0, 9.0], [4.0, 4.0, 4.0]])
    assert estimate.value == pytest.approx(2.0)
    assert estimate.low == pytest.approx(1.0)  # the first case drawn twice, its outlier outvoted
    assert estimate.count == 6
    assert geomean([[1.0, 1.0, 9.0], [4.0, 4.0, 4.0]]) == estimate  # seeded
    one = geomean([[1.9, 2.0, 2.1] * 20])
    assert 1.9 <= one.low <= one.value == 2.0 <= one.high <= 2.1
    assert estimate.confidence == 0.5  # from the lesser case to the greater one: two cases hold no more than that
    assert (one.confidence, geomean([[2.0, 2.0, 2.0]] * 6).confidence) == (0.95, 0.95)
    many = geomean([[2.0 + 0.01 * k] * 5 for k in range(-10, 11)])
    assert many.low < 2.0 < many.high
    assert many.relative_half_width < 0.03


@pytest.mark.parametrize("samples", [[], [[]], [[1.0], []], [[1.0, 0.0]]])
def test_geomean_refuses_what_has_none(samples: list[list[float]]) -> None:
    with pytest.raises(ValueError, match="positive"):
        geomean(samples)


@pytest.mark.parametrize("ratios", [[1.0, 1.1, 1.3, 2.0, 2.2], [1.0, 1.1, 1.3, 2.0, 2.2, 2.3], [1.0, 3.0], [2.0]])
def test_bootstrap_medians_are_those_of_samples_drawn_with_replacement(ratios: list[float]) -> None:
    generator = np.random.default_rng(1)
    quick = np.exp(bootstrap(ratios, cluster="a", generator=generator, resamples=40_000).log_medians)
    plain = np.median(np.asarray(ratios)[generator.integers(len(ratios), size=(40_000, len(ratios)))], axis=1)
    levels = sorted({*plain.round(9)})
    assert {*quick.round(9)} <= {*levels}
    for level in levels:
        assert (quick <= level + 1e-9).mean() == pytest.approx((plain <= level + 1e-9).mean(), abs=0.012)  # 3 errors


def test_a_models_cases_are_drawn_together() -> None:
    generator = np.random.default_rng(0)

    def interval(clusters: str) -> Estimate:
        values = [1.0, 1.0, 2.0, 2.0, 3.0, 3.0, 4.0, 4.0]
        return geomean_of(
            [bootstrap([v] * 5, cluster=c, generator=generator) for v, c in zip(values, clusters, strict=True)]
        )

    together, apart = interval("aabbccdd"), interval("abcdefgh")
    assert together.value == pytest.approx(apart.value)
    assert together.high - together.low > 1.2 * (apart.high - apart.low)


def test_a_mean_of_models_has_an_interval_that_narrows_with_their_number() -> None:
    few, many = mean([0.2, 0.4, 0.9]), mean([0.2, 0.4, 0.9] * 30)
    assert few.value == many.value == pytest.approx(0.5)
    assert (few.low, few.high) == (pytest.approx(0.2), pytest.approx(0.9))
    assert 0.4 < many.low < 0.5 < many.high < 0.6
    assert (few.confidence, few.count) == (0.75, 3)
    assert many.confidence == 0.95
    one = mean([0.7])
    assert (one.low, one.value, one.high, one.count, one.confidence) == (0.7, 0.7, 0.7, 1, 0.0)
    with pytest.raises(ValueError, match="needs values"):
        mean([])


def test_a_slowdown_that_counts_as_1_does_so_in_the_value_and_in_its_interval() -> None:
    generator = np.random.default_rng(0)
    slow, around, fast = (
        at_least_1(bootstrap_processes(processes, cluster=str(number), generator=generator))
        for number, processes in enumerate(([[0.5], [0.6], [0.7]], [[0.5], [1.1], [2.0]], [[2.0], [2.1], [2.2]]))
    )
    assert (geomean_of([slow]).value, geomean_of([slow]).low, geomean_of([slow]).high) == (1.0, 1.0, 1.0)
    assert geomean_of([around]).low == 1.0 < geomean_of([around]).high
    assert geomean_of([slow, fast]).value == pytest.approx(geomean_of([fast]).value ** 0.5)
    assert geomean_of([slow, fast]).low == pytest.approx(1.0)
