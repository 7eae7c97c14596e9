"""Norms that are computed piece by piece: as of the whole tensor, in fp64, on the device that is asked for."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor

from torchzoo.measure.check import norms
from torchzoo.measure.check.norms import distance, finite_norm, l2_norm

CPU = torch.device("cpu")
DEVICES = [CPU, pytest.param(torch.device("cuda", 0), marks=pytest.mark.gpu)]


@pytest.fixture(autouse=True)
def _small_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(norms, "_HOST_PIECE", 7)
    monkeypatch.setattr(norms, "_ACCELERATOR_PIECE", 7)


def tensors(count: int) -> list[Tensor]:
    generator = torch.Generator().manual_seed(0)
    return [torch.randn(5, 9, generator=generator) for _ in range(count)]


@pytest.mark.parametrize("device", DEVICES)
def test_pieces_make_the_norm_of_the_whole(device: torch.device) -> None:
    a, b, weights = tensors(3)
    assert l2_norm(a.half(), device) == pytest.approx(float(a.half().double().norm()), rel=1e-12)
    expected = float(((a.double() - b.bfloat16().double()) * weights.double()).norm())
    assert distance(a, b.bfloat16(), weights, device) == pytest.approx(expected, rel=1e-12)
    assert distance(a.t(), b.t(), None, device) == pytest.approx(float((a.double() - b.double()).norm()), rel=1e-12)
    assert finite_norm(a, weights, device) == pytest.approx(float((a.double() * weights.double()).norm()), rel=1e-12)
    assert l2_norm(torch.zeros(0), device) == 0.0
    assert l2_norm(torch.tensor(-2.0), device) == 2.0


def test_a_nan_is_seen_whatever_other_pieces_hold() -> None:
    values = torch.zeros(30)
    values[0], values[29] = math.inf, math.nan
    assert math.isnan(l2_norm(values))
    values[29] = 1.0
    assert math.isinf(l2_norm(values))


def test_what_is_infinite_or_nan_on_both_sides_is_equal_and_has_no_norm() -> None:
    a = torch.ones(30)
    a[3], a[11], a[20] = math.inf, -math.inf, math.nan
    assert distance(a, a.clone(), None, CPU) == 0.0
    assert finite_norm(a, None, CPU) == pytest.approx(math.sqrt(27))
    other = a.clone()
    other[11] = math.inf
    assert not math.isfinite(distance(a, other, None, CPU))


def test_sparse_tensors_have_the_norms_of_dense_ones() -> None:
    a, b, weights = tensors(3)
    a[1:], b[2:], weights[:1] = 0, 0, 2
    expected = float(((a.double() - b.double()) * weights.double()).norm())
    for other in (b, b.to_sparse(1)):
        for factor in (weights, weights.to_sparse(1)):
            assert distance(a.to_sparse(1), other, factor, CPU) == pytest.approx(expected, rel=1e-12)
    assert l2_norm(b.to_sparse(1)) == pytest.approx(float(b.double().norm()), rel=1e-12)
    assert finite_norm(a.to_sparse(1), weights, CPU) == pytest.approx(2 * float(a.double().norm()), rel=1e-12)
