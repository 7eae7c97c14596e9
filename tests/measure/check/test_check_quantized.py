"""The check of quantized precisions: right results pass, and a wrong scale, packing or program is found."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec
import pytest
import torch
from classifier import check, drops_a_relu, is_right
from torch import Tensor, nn

from examples import CASE, SPEC
from perceptron import Perceptron
from torchzoo.case import Backend, Mode, NativeDtype, Precision
from torchzoo.measure.check.check_case import check_case
from torchzoo.measure.precision import apply_precision, check_precision, inspect_step
from torchzoo.record import CheckStatus
from torchzoo.zoo.catalog import find_models
from torchzoo.zoo.spec import ModelSpec
from torchzoo_models._shared.quantization import QuantizedImageClassifier

torchao = pytest.importorskip("torchao")

CASES = [(Precision.INT8WO, Mode.EVAL), (Precision.FP8, Mode.EVAL), (Precision.FP8, Mode.TRAIN)]
pytestmark = pytest.mark.usefixtures("float8_everywhere")  # on a GPU it changes nothing that has float8


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


class InEightBits(QuantizedImageClassifier):
    """As the zoo's quantized classifiers are: fake quantization in training, int8 kernels in evaluation."""

    image_size = 8
    num_classes = 10

    def build_float_network(self) -> nn.Module:
        return nn.Sequential(
            nn.Conv2d(3, 16, 3, bias=False),
            nn.BatchNorm2d(16),
            nn.ReLU(),
            nn.Conv2d(16, 16, 3),
            nn.ReLU(),
            nn.Flatten(),
            nn.Linear(256, 10),
        )


def spec_of(name: str) -> ModelSpec:
    """A spec with the tolerances of one of the zoo's models."""
    return msgspec.structs.replace(SPEC, tolerances=find_models([]).spec(name).tolerances)


def halves_its_results(graph: torch.fx.GraphModule, _: Any) -> Callable[..., Any]:
    def changed(one: Any) -> Any:
        if isinstance(one, Tensor) and one.is_quantized:
            return torch.quantize_per_tensor(one.dequantize() / 2, one.q_scale(), one.q_zero_point(), one.dtype)
        return one / 2 if isinstance(one, Tensor) and one.is_floating_point() else one

    return lambda *args: tuple(map(changed, graph(*args)))


#: Dynamo of torch 2.11 leaves converted networks to Python.
COMPILED_EVALUATION = pytest.param(
    Mode.EVAL, marks=pytest.mark.skipif(torch.__version__ < "2.12", reason="Dynamo leaves converted networks to Python")
)


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
@pytest.mark.parametrize(
    ("mode", "name"),
    [(Mode.TRAIN, "eager"), (Mode.TRAIN, "aot_eager"), (Mode.EVAL, "eager")],
)
def test_a_model_that_is_quantized_itself_has_a_reference(mode: Mode, name: str) -> None:
    found = check(InEightBits, mode, name, spec_of("resnet50_quantized_qat"))
    assert found.status is CheckStatus.CORRECT, found.reason
    assert mode is Mode.TRAIN or 0 < (found.comparisons[0].error or 0.0) < 0.1, "int8 was compared with itself"


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
@pytest.mark.parametrize("mode", [Mode.TRAIN, COMPILED_EVALUATION])
def test_a_backend_that_is_wrong_for_a_quantized_model_is_found(mode: Mode, backend: Any) -> None:
    found = check(InEightBits, mode, backend(halves_its_results), spec_of("resnet50_quantized_qat"))
    assert found.status is CheckStatus.INCORRECT


@pytest.mark.gpu
@pytest.mark.parametrize("name", ["eager", "inductor"])
@pytest.mark.parametrize(("precision", "mode"), [*CASES, (Precision.INT4WO, Mode.EVAL)])
def test_a_gpu_computes_what_our_quantization_says(precision: Precision, mode: Mode, name: str) -> None:
    capability = torch.cuda.get_device_capability()
    if capability < {Precision.FP8: (8, 9), Precision.INT4WO: (8, 0)}.get(precision, (0, 0)):
        pytest.skip(f"no {precision} on a GPU of compute capability {capability}")
    device = torch.device("cuda", 0)
    case = msgspec.structs.replace(CASE, mode=mode, precision=precision, backend=Backend(name), device="cuda")
    case = msgspec.structs.replace(case, batch_size=8)
    found = check_case(case, SPEC, Deep, device)
    assert found.status is CheckStatus.CORRECT, found.reason
    model = Deep(mode, device, 8)
    apply_precision(model, precision)
    check_precision(model, precision, NativeDtype.FP32, inspect_step(model, model.measured_step))
