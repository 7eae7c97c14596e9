"""VariantFigures from samples with known answers, and the intervals' coverage on seeded noise."""

from __future__ import annotations

import math
import random

import numpy as np
import pytest

from torchzoo import stats
from torchzoo.record import Block
from torchzoo.stats import Estimate


def test_interval_of_the_median_is_the_order_statistics_of_the_tables() -> None:
    # n = 10: x(2), x(9) cover the median with 1 - 2 * 11/1024 = 97.85%, x(3), x(8) only with 89%.
    estimate = stats.median_estimate(list(range(1, 11)))
    assert (estimate.low, estimate.value, estimate.high) == (2, 5.5, 9)
    assert estimate.confidence == 0.95


def test_few_samples_say_how_little_they_are_sure_of() -> None:
    assert stats.median_estimate([1.0, 2.0]).confidence == pytest.approx(0.5)
    assert stats.median_estimate([1.0] * 5).confidence == pytest.approx(1 - 2 / 32)
    one = stats.median_estimate([3.0])
    assert one.confidence == 0
    assert math.isinf(one.relative_half_width)
    with pytest.raises(ValueError, match="no samples"):
        stats.median_estimate([])


@pytest.mark.parametrize("count", [6, 9, 20, 75, 1500])
def test_interval_covers_the_true_median_95_times_in_100(count: int) -> None:
    generator = random.Random(count)
    trials = 400
    held = sum(
        not stats.median_estimate([generator.lognormvariate(0.0, 0.3) for _ in range(count)]).excludes(1.0)
        for _ in range(trials)
    )
    assert held / trials >= 0.945  # 97% less three standard errors


def test_speedup_pairs_quads_so_that_linear_drift_cancels() -> None:
    # Both slow down steadily; the candidate is exactly twice as fast at any moment... and so is the estimate.
    blocks = []
    for position in range(40):
        drift = 1.0 + 0.01 * position
        candidate = position % 4 in (1, 2)
        blocks.append(Block("candidate" if candidate else "eager", (drift * (0.5 if candidate else 1.0),) * 3))
    speedup = stats.speedup(blocks)
    assert speedup.value == pytest.approx(2.0)
    assert speedup.high - speedup.low == pytest.approx(0.0, abs=1e-9)
    assert stats.latency_s(blocks, "eager").value == pytest.approx(1.195)


def test_an_unfinished_quad_is_left_out_of_the_speedup() -> None:
    quad = [Block(name, (1.0,)) for name in ("eager", "candidate", "candidate", "eager")]
    assert len(stats.quad_ratios([*quad, *quad[:3]])) == 1


def test_work_every_second_step_counts_in_the_latency() -> None:
    blocks = [Block("eager", (1.0, 3.0)) for _ in range(8)]
    assert stats.latency_s(blocks, "eager").value == 2.0


def test_outliers_are_counted_by_the_modified_z_score() -> None:
    assert stats.outlier_count([1.0, 1.01, 0.99, 1.0, 1.02, 0.98, 5.0]) == 1
    assert stats.outlier_count([1.0, 1.0, 1.0, 9.0]) == 0  # a MAD of zero judges nothing
    assert stats.outlier_count([]) == 0


def test_geomean_is_over_the_cases_medians_and_its_interval_over_cases_and_samples() -> None:
    estimate = stats.geomean([[1.0, 1.0, 9.0], [4.0, 4.0, 4.0]])
    assert estimate.value == pytest.approx(2.0)
    assert estimate.low == pytest.approx(1.0)  # the first case drawn twice, its outlier outvoted
    assert estimate.count == 6
    assert stats.geomean([[1.0, 1.0, 9.0], [4.0, 4.0, 4.0]]) == estimate  # seeded
    one = stats.geomean([[1.9, 2.0, 2.1] * 20])
    assert 1.9 <= one.low <= one.value == 2.0 <= one.high <= 2.1
    many = stats.geomean([[2.0 + 0.01 * k] * 5 for k in range(-10, 11)])
    assert many.low < 2.0 < many.high
    assert many.relative_half_width < 0.03


@pytest.mark.parametrize("samples", [[], [[]], [[1.0], []], [[1.0, 0.0]]])
def test_geomean_refuses_what_has_none(samples: list[list[float]]) -> None:
    with pytest.raises(ValueError, match="positive"):
        stats.geomean(samples)


@pytest.mark.parametrize("ratios", [[1.0, 1.1, 1.3, 2.0, 2.2], [1.0, 1.1, 1.3, 2.0, 2.2, 2.3], [1.0, 3.0], [2.0]])
def test_resampled_medians_are_those_of_samples_drawn_with_replacement(ratios: list[float]) -> None:
    generator = np.random.default_rng(1)
    quick = np.exp(stats.bootstrap(ratios, cluster="a", generator=generator, resamples=40_000).log_medians)
    plain = np.median(np.asarray(ratios)[generator.integers(len(ratios), size=(40_000, len(ratios)))], axis=1)
    levels = sorted({*plain.round(9)})
    assert {*quick.round(9)} <= {*levels}
    for level in levels:
        assert (quick <= level + 1e-9).mean() == pytest.approx((plain <= level + 1e-9).mean(), abs=0.012)  # 3 errors


def test_a_models_cases_are_drawn_together() -> None:
    generator = np.random.default_rng(0)

    def interval(clusters: str) -> Estimate:
        values = [1.0, 1.0, 2.0, 2.0, 3.0, 3.0, 4.0, 4.0]
        return stats.geomean_of(
            [stats.bootstrap([v] * 5, cluster=c, generator=generator) for v, c in zip(values, clusters, strict=True)]
        )

    together, apart = interval("aabbccdd"), interval("abcdefgh")
    assert together.value == pytest.approx(apart.value)
    assert together.high - together.low > 1.2 * (apart.high - apart.low)
