"""Errors against a reference, and how large they may be."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from torch import Tensor

from torchzoo.case import ResultKind
from torchzoo.measure.check.judging import judge_results
from torchzoo.measure.check.reference import Reference
from torchzoo.measure.check.results import CanNotCompare, Results, collect_outputs, on_host
from torchzoo.record import ResultComparison


def judged(*arguments: Any, **options: Any) -> ResultComparison:
    return judge_results(*arguments, **options).comparison


def results(**tensors: Tensor) -> Results:
    return Results(values={ResultKind.GRADIENTS: dict(tensors)})


def test_noise_in_a_gradient_that_should_be_zero_is_no_error() -> None:
    big = torch.randn(1000, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    reference = Reference(results(weight=big, bias=torch.full((10,), 1e-12)))
    noisy = results(weight=big * (1 + 1e-6), bias=torch.full((10,), 1e-7))
    comparison = judged(ResultKind.GRADIENTS, reference, noisy, tolerance=1e-3)
    assert comparison.is_close
    wrong = results(weight=big, bias=torch.full((10,), 0.1))
    comparison = judged(ResultKind.GRADIENTS, reference, wrong, tolerance=1e-3)
    assert (comparison.is_close, comparison.worst) == (False, "bias")


def test_a_comparison_counts_the_tensors_that_are_wrong() -> None:
    names = "abcdef"
    reference = Reference(results(**{name: torch.ones(10, dtype=torch.float64) for name in names}))
    found = results(**{name: torch.ones(10) * (1.1 if name in "bd" else 1.3 if name == "e" else 1) for name in names})
    comparison = judged(ResultKind.GRADIENTS, reference, found, tolerance=1e-3)
    assert (comparison.worst, comparison.tensors_wrong, comparison.tensors, comparison.is_close) == ("e", 3, 6, False)


def test_a_gradient_that_is_zero_at_fp64_may_be_rounding_of_half_precision_and_a_small_one_may_not() -> None:
    big = torch.randn(1000, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    for true_bias, off_by, is_close in ((1e-15, 2e-4, True), (1e-15, 1e-3, False), (1e-5, 2e-4, False)):
        reference = Reference(results(weight=big, bias=torch.full((10,), true_bias, dtype=torch.float64)))
        found = results(weight=big, bias=torch.full((10,), true_bias + off_by))
        assert judged(ResultKind.GRADIENTS, reference, found, tolerance=5e-2).is_close is is_close


def test_no_result_is_wrong_by_a_rule_that_calls_a_run_of_eager_wrong() -> None:
    ones = torch.ones(100, dtype=torch.float64)
    reference = Reference(results(a=ones, b=ones, c=ones))

    def is_close(of_found: dict[str, float], *, of_perturbed: dict[str, float]) -> bool | None:
        runs = [dict.fromkeys("abc", 0.0) for _ in range(3)]
        runs[1] |= of_perturbed
        found = results(**{name: ones * (1 + of_found.get(name, 0.0)) for name in "abc"})
        eager = results(a=ones, b=ones, c=ones)
        return judged(
            ResultKind.GRADIENTS, reference, found, tolerance=1e-3, baseline=eager, eager=eager, perturbed=runs
        ).is_close

    assert is_close({"a": 0.005}, of_perturbed={}) is False
    assert is_close({"a": 0.005}, of_perturbed={"b": 1e-3}) is False  # within what is allowed: no reason to allow more
    assert is_close({"a": 0.005}, of_perturbed={"b": 6e-3}) is True  # an input of a ReLU was cut, in another tensor
    assert is_close({"a": 0.05}, of_perturbed={"b": 6e-3}) is False
    assert is_close({"a": 0.005}, of_perturbed={"b": math.inf}) is False
    # one tensor that is off by much excuses one, and more only as far as ten times the limit
    assert is_close({"a": 0.05}, of_perturbed={"b": 0.06}) is True
    assert is_close({"a": 0.05, "c": 0.05}, of_perturbed={"b": 0.06}) is False
    assert is_close({"a": 0.005, "c": 0.005}, of_perturbed={"b": 0.06}) is True
    assert is_close({"a": 0.05, "c": 0.05}, of_perturbed={"a": 0.06, "b": 0.06}) is True


def test_errors_may_be_a_small_multiple_of_eagers_but_never_most_of_the_result() -> None:
    reference = torch.ones(100, dtype=torch.float64)

    def is_close(error: float, eager_error: float) -> bool | None:
        found, eager = results(w=reference * (1 + error)), results(w=reference * (1 - eager_error))
        return judged(
            ResultKind.GRADIENTS, Reference(results(w=reference)), found, tolerance=1e-3, baseline=eager, eager=eager
        ).is_close

    assert is_close(0.02, 0.01) is True
    assert is_close(0.05, 0.01) is False
    assert is_close(0.5, 0.4) is None  # eager itself is far off: nothing to judge by
    assert is_close(20.0, 0.4) is False  # but this is more than rounding explains
    assert is_close(math.nan, math.nan) is None  # eager has no number, so that its like says nothing
    assert is_close(-0.4, 0.4) is True  # as far off, but as eager computes


def test_adams_updates_of_noise_gradients_weigh_nothing_and_of_real_ones_do() -> None:
    gradient = torch.tensor([1.0, -0.5, 1e-9, -1e-9], dtype=torch.float64)
    update = -1e-3 * gradient.sign()
    reference = Results(values={ResultKind.PARAMETERS: {"w": update}}, update_weights={"w": gradient.abs()})

    def is_close(*signs: float) -> bool | None:
        found = Results(values={ResultKind.PARAMETERS: {"w": update * torch.tensor(signs)}})
        return judged(ResultKind.PARAMETERS, Reference(reference), found, tolerance=1e-3).is_close

    assert is_close(1, 1, -1, -1)
    assert is_close(1, -1, 1, 1) is False


def test_an_update_below_the_resolution_of_the_weights_is_not_judged() -> None:
    reference = Results(values={ResultKind.PARAMETERS: {"w": torch.full((10,), 1e-5, dtype=torch.float64)}})
    lost = Results(values={ResultKind.PARAMETERS: {"w": torch.zeros(10)}}, resolution={"w": 2**-7 * 10**0.5})
    assert judged(ResultKind.PARAMETERS, Reference(reference), lost, tolerance=0.1).is_close is None


def test_an_update_may_be_twice_as_far_off_as_its_gradient() -> None:
    update = torch.ones(10, dtype=torch.float64)
    reference = Reference(Results(values={ResultKind.PARAMETERS: {"w": update}}))
    found = Results(values={ResultKind.PARAMETERS: {"w": 1.05 * update}})
    for allowed, is_close in ((0.1, True), (0.01, False)):
        comparison = judged(ResultKind.PARAMETERS, reference, found, tolerance=1e-3, always_allowed={"w": allowed})
        assert comparison.is_close is is_close


def test_large_sparse_gradients_are_compared_as_dense_ones() -> None:
    table = torch.zeros(2**16, 32)
    table[7], table[9] = 1.0, 2.0
    assert on_host(table).is_sparse
    for other in (on_host(table), table.clone(), on_host(table.to_sparse())):
        assert judged(
            ResultKind.GRADIENTS, Reference(results(w=on_host(table))), results(w=other), tolerance=0.0
        ).is_close
    wrong = table.clone()
    wrong[8] = 0.5
    for other in (on_host(wrong), wrong):
        comparison = judged(ResultKind.GRADIENTS, Reference(results(w=on_host(table))), results(w=other), tolerance=0.1)
        assert comparison.error == pytest.approx(0.5 / 5**0.5)
    rows = torch.sparse_coo_tensor(torch.tensor([[9, 7]]), torch.tensor([[2.0] * 32, [1.0] * 32]), table.shape)
    moved = Results(values={ResultKind.PARAMETERS: {"w": 1.1 * table}})
    for weights in (on_host(table), on_host(rows)):  # made sparse by `on_host`, or by the embedding
        weighted = Results(values={ResultKind.PARAMETERS: {"w": on_host(table)}}, update_weights={"w": weights})
        assert judged(ResultKind.PARAMETERS, Reference(weighted), moved, tolerance=0.0).error == pytest.approx(0.1)


def test_integers_are_compared_by_the_share_that_differs() -> None:
    tokens = torch.arange(100)
    changed = tokens.clone()
    changed[0] = 7
    reference = Reference(Results(values={ResultKind.INTEGERS: {"tokens": tokens}}))
    found = Results(values={ResultKind.INTEGERS: {"tokens": changed}})
    comparison = judged(ResultKind.INTEGERS, reference, found, tolerance=0.0)
    assert (comparison.error, comparison.is_close) == (0.01, False)
    assert judged(ResultKind.INTEGERS, reference, found, tolerance=0.02).is_close


def test_equal_infinities_are_equal() -> None:
    mask = torch.tensor([0.0, -math.inf])
    reference = Reference(results(w=mask))
    assert judged(ResultKind.GRADIENTS, reference, results(w=mask.clone()), tolerance=0.1).is_close
    assert judged(ResultKind.GRADIENTS, reference, results(w=mask.abs()), tolerance=0.1).is_close is False


def test_outputs_of_unknown_kind_are_not_passed_over() -> None:
    with pytest.raises(CanNotCompare, match="output\\['a'\\] is a object"):
        collect_outputs({"a": object()}, rows=False)
