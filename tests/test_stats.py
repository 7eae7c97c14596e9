"""Figures from samples with known answers, and how often the intervals hold the true value on seeded noise."""

from __future__ import annotations

import math
import random

import pytest

from torchzoo import stats
from torchzoo.record import Block


def test_interval_of_the_median_is_the_order_statistics_of_the_tables() -> None:
    # n = 10: x(2), x(9) cover the median with 1 - 2 * 11/1024 = 97.85%, x(3), x(8) only with 89%.
    estimate = stats.median_estimate(list(range(1, 11)))
    assert (estimate.low, estimate.value, estimate.high) == (2, 5.5, 9)
    assert estimate.confidence == 0.95


def test_few_samples_say_how_little_they_are_sure_of() -> None:
    assert stats.median_estimate([1.0, 2.0]).confidence == pytest.approx(0.5)
    assert stats.median_estimate([1.0] * 5).confidence == pytest.approx(1 - 2 / 32)
    assert [stats.median_estimate([1.0] * count).has_interval for count in (1, 2, 3)] == [False, False, True]
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
        candidate = position % 4 in ((1, 2) if position % 8 < 4 else (0, 3))  # A B B A  B A A B
        blocks.append(Block("candidate" if candidate else "eager", (drift * (0.5 if candidate else 1.0),) * 3))
    speedup = stats.speedup(blocks)
    assert speedup.value == pytest.approx(2.0)
    assert speedup.high - speedup.low == pytest.approx(0.0, abs=1e-9)
    assert stats.latency_s(blocks, "eager").value == pytest.approx(1.2)


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


def test_holm_steps_down_in_the_order_of_the_tests() -> None:
    assert stats.holm([0.01, 0.04, 0.03, 0.005]) == pytest.approx([0.03, 0.06, 0.06, 0.02])
    assert stats.holm([0.9, 0.001, 0.8]) == pytest.approx([1.0, 0.003, 1.0])
    assert stats.holm([]) == []


def test_digamma_and_trigamma_at_known_places() -> None:
    euler = 0.5772156649015329
    assert stats.digamma(1) == pytest.approx(-euler, rel=1e-9)
    assert stats.digamma(0.5) == pytest.approx(-euler - 2 * math.log(2), rel=1e-9)
    assert stats.trigamma(1) == pytest.approx(math.pi**2 / 6, rel=1e-9)
    assert stats.trigamma(0.5) == pytest.approx(math.pi**2 / 2, rel=1e-9)
    assert stats.trigamma(30) == pytest.approx(sum(1 / (30 + k) ** 2 for k in range(200000)), rel=1e-3)
