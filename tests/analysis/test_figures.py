"""Which process the first step of a case is of."""

from __future__ import annotations

from typing import Any

import pytest

from examples import by_itself, variant_result
from torchzoo.analysis.figures import FirstStep, VariantFigures
from torchzoo.record import Compilation
from torchzoo.settings import CacheMode
from torchzoo.stats import median_estimate


def first_step(**changes: Any) -> FirstStep | None:
    rates = median_estimate([10.0] * 8)
    return VariantFigures(
        latency_s=rates, outliers=0, steps_per_s=rates, device_share=None, issued_s=None, raw=variant_result(**changes)
    ).cold_first_step


@pytest.mark.parametrize("cache", [CacheMode.WARM, CacheMode.SHARED])
def test_a_first_step_from_filled_caches_is_not_a_cold_one(cache: CacheMode) -> None:
    compilation = Compilation(graphs=1, cache=cache)
    assert first_step(compilation=compilation) is None
    assert first_step(compilation=compilation, alone=by_itself()) == FirstStep(20.5, 40.0)


def test_a_first_step_that_compiles_everything_or_nothing_is_a_cold_one() -> None:
    assert first_step() == FirstStep(0.5, 0.4)
    assert first_step(compilation=Compilation(graphs=1, cache=CacheMode.COLD)) == FirstStep(0.5, 0.4)
    assert first_step(compilation=Compilation(graphs=1, cache=CacheMode.COLD), alone=by_itself()) == FirstStep(20.5, 40)
