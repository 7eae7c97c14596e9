"""The check of quantized precisions: right results pass, and a wrong scale, packing or program is found."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from classifier import check, drops_a_relu, is_right
from torch import Tensor, nn

from perceptron import Perceptron
from torchzoo.case import Mode, Precision
from torchzoo.record import CheckStatus

torchao = pytest.importorskip("torchao")

CASES = [(Precision.INT8WO, Mode.EVAL), (Precision.FP8, Mode.EVAL), (Precision.FP8, Mode.TRAIN)]
pytestmark = pytest.mark.usefixtures("float8_everywhere")


class Deep(Perceptron):
    """Deep enough that errors add up, and no activation is lost."""

    def build_network(self) -> nn.Module:
        sizes = ((128, 64), (64, 128), (128, 128), (128, 256), (256, 64))
        layers = [module for size in sizes for module in (nn.Linear(*size), nn.GELU())]
        return nn.Sequential(*layers, nn.Linear(64, 10))


@pytest.mark.parametrize("model", [Perceptron, Deep])
@pytest.mark.parametrize(("precision", "mode"), CASES)
def test_eager_agrees_with_our_own_quantization(precision: Precision, mode: Mode, model: Any) -> None:
    found = check(model, mode, precision=precision)
    assert found.status is CheckStatus.CORRECT, found.reason
    assert 0 < max(one.error or 0.0 for one in found.comparisons) < 0.1


@pytest.mark.parametrize(("precision", "mode"), CASES)
def test_a_right_backend_passes_and_a_wrong_one_does_not(precision: Precision, mode: Mode, backend: Any) -> None:
    right = check(Perceptron, mode, backend(is_right), precision=precision)
    assert right.status is CheckStatus.CORRECT, right.reason
    wrong = check(Perceptron, mode, backend(drops_a_relu), precision=precision)
    assert wrong.status is CheckStatus.INCORRECT
    assert wrong.reason


def test_wrong_scales_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    from torchao.quantization.quantize_.workflows import Int8Tensor

    made = Int8Tensor.from_hp.__func__

    def with_wrong_scales(cls: Any, weight: Tensor, **options: Any) -> Any:
        quantized = made(cls, weight, **options)
        quantized.scale.mul_(1.15)
        return quantized

    monkeypatch.setattr(Int8Tensor, "from_hp", classmethod(with_wrong_scales))
    assert check(Perceptron, Mode.EVAL, precision=Precision.INT8WO).status is CheckStatus.INCORRECT


def test_a_wrong_product_of_gradients_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    product = torch._scaled_mm

    def wrong(a: Tensor, b: Tensor, **options: Any) -> Tensor:
        result: Tensor = product(a, b, **options)
        return result * (1.5 if a.dtype is torch.float8_e5m2 or b.dtype is torch.float8_e5m2 else 1.0)

    monkeypatch.setattr(torch, "_scaled_mm", wrong)
    found = check(Deep, Mode.TRAIN, precision=Precision.FP8)
    assert found.status is CheckStatus.INCORRECT
    assert "gradients" in found.reason
