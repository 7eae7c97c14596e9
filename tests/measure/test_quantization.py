"""Quantized precisions reach their label or are refused: what is stored, what computes, and what the check finds."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from measuring import measure
from torch import Tensor, nn

from perceptron import Perceptron
from torchzoo.backends import NotRunnable
from torchzoo.case import Mode, NativeDtype, Precision
from torchzoo.measure import quantization
from torchzoo.measure.check.quantized import float8_rounded, int4_rounded, int8_rounded
from torchzoo.measure.passes.flops import count_work
from torchzoo.measure.precision import (
    Inspection,
    LabelNotReached,
    apply_precision,
    check_precision,
    inspect_step,
)
from torchzoo.measure.quantization import layers_to_quantize, refusals_are_skips
from torchzoo.model.tensors import stored_bytes
from torchzoo.record import CheckStatus
from torchzoo.settings import Pass
from torchzoo.zoo.catalog import find_models, load_model_class
from user_models import TINY

torchao = pytest.importorskip("torchao")

#: Precisions, and modes that they have, whose kernels run on the CPU (fp8 more slowly than bf16).
ON_CPU = [(Precision.INT8WO, Mode.EVAL), (Precision.FP8, Mode.EVAL), (Precision.FP8, Mode.TRAIN)]


class Convolutional(Perceptron):
    def build_network(self) -> nn.Module:
        return nn.Sequential(nn.Unflatten(1, (2, 8, 8)), nn.Conv2d(2, 10, 8), nn.Flatten())


class ReadsItsWeight(Perceptron):
    """With an operation on a weight that torchao has no code for."""

    def eval_step(self) -> Any:
        self.network(*self.batch.inputs)
        return self.network[0].weight.cumsum(0)


@pytest.mark.usefixtures("float8_everywhere")
@pytest.mark.parametrize(("precision", "mode"), ON_CPU)
def test_the_label_is_reached_and_the_record_says_how(precision: Precision, mode: Mode) -> None:
    model = Perceptron(mode, "cpu", 4)
    weight = model.network[0].weight
    flags = apply_precision(model, precision)
    inspection = inspect_step(model, model.measured_step)
    check_precision(model, precision, NativeDtype.FP32, inspection)

    assert {parameter.dtype for parameter in model.network.parameters()} == {torch.bfloat16}
    assert flags["base_dtype"] == "bfloat16"
    assert torchao.__version__ in flags["quantized_by"]
    layers = "2 of 2" if precision is Precision.INT8WO else "1 of 2"
    assert flags["quantized_layers"].startswith(f"{layers} Linear layers")
    if mode is Mode.TRAIN:
        assert inspection.quantized_operators["_scaled_mm"] == 3  # the output and two gradients
        before = weight.detach().clone()
        model.train_step()
        assert not torch.equal(weight, before)
        assert model.network[0].weight is weight, "the optimizer steps a parameter that the network no longer has"
    else:
        assert stored_bytes(model.network[0].weight) < weight.numel() * 1.1
        assert model.network[2].weight.shape == (10, 64)


@pytest.mark.parametrize(
    ("precision", "words"),
    [(Precision.FP8, "compute capability 8.9"), (Precision.INT4WO, "compute capability 8.0")],
)
def test_a_device_without_the_kernels_is_a_reasoned_skip(precision: Precision, words: str) -> None:
    with pytest.raises(NotRunnable, match=words):
        apply_precision(Perceptron(Mode.EVAL, "cpu", 4), precision)


def test_a_model_without_suitable_layers_is_a_reasoned_skip() -> None:
    with pytest.raises(NotRunnable, match="int8wo changes Linear layers, and this model has none"):
        apply_precision(Convolutional(Mode.EVAL, "cpu", 4), Precision.INT8WO)


@pytest.mark.parametrize(
    ("precision", "chosen"),
    [(Precision.INT8WO, {"0", "2"}), (Precision.FP8, {"0"}), (Precision.INT4WO, {"0"})],
)
def test_layers_are_chosen_by_their_sizes(precision: Precision, chosen: set[str]) -> None:
    assert layers_to_quantize(Perceptron(Mode.EVAL, "cpu", 4).network, precision).keys() == chosen


def test_layers_that_do_not_multiply_as_linear_layers_do_are_left_alone() -> None:
    class Own(nn.Linear):
        def forward(self, x: Tensor) -> Tensor:
            return 2 * super().forward(x)

    normed = nn.utils.parametrizations.weight_norm(nn.Linear(16, 16))
    network = nn.ModuleDict({"own": Own(16, 16), "normed": normed, "attention": nn.MultiheadAttention(16, 2)})
    assert not layers_to_quantize(network, Precision.INT8WO)


def test_weights_that_were_not_quantized_are_not_measured_under_the_label(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(quantization, "_quantize_network", lambda *_: "nothing")
    model = Perceptron(Mode.EVAL, "cpu", 4)
    apply_precision(model, Precision.INT8WO)
    inspection = inspect_step(model, model.eval_step)
    with pytest.raises(LabelNotReached, match="promises weights in int8, but the networks have no quantized weights"):
        check_precision(model, Precision.INT8WO, NativeDtype.FP32, inspection)


def test_quantized_weights_that_the_step_does_not_multiply_with_are_not_enough() -> None:
    model = Perceptron(Mode.EVAL, "cpu", 4)
    apply_precision(model, Precision.INT8WO)
    inspection = Inspection(calls={}, operator_dtypes={"bfloat16": 3}, quantized_operators={"t": 2})
    with pytest.raises(LabelNotReached, match="but there is t"):
        check_precision(model, Precision.INT8WO, NativeDtype.FP32, inspection)


def test_what_torchao_has_no_code_for_is_a_reasoned_skip() -> None:
    model = ReadsItsWeight(Mode.EVAL, "cpu", 4)
    apply_precision(model, Precision.INT8WO)
    with pytest.raises(NotRunnable, match=r"cumsum"), refusals_are_skips(Precision.INT8WO):
        model.eval_step()
    with pytest.raises(NotImplementedError, match="the model's own"), refusals_are_skips(Precision.INT8WO):
        raise NotImplementedError("the model's own")


@pytest.mark.usefixtures("float8_everywhere")
def test_products_in_float8_are_counted_as_such() -> None:
    model = Perceptron(Mode.EVAL, "cpu", 4)
    apply_precision(model, Precision.FP8)
    flops = count_work(model.eval_step)
    assert flops.by_operator["aten::_scaled_mm"] == {"float8_e4m3fn": 2 * 4 * 128 * 64}
    assert sum(flops.by_operator["aten::addmm"].values()) == 2 * 4 * 64 * 10
    assert not flops.without_formula


def test_a_token_reads_the_bytes_that_quantized_weights_have() -> None:
    small = load_model_class(find_models([]).spec("simple_gpt")).small()
    assert small is not None
    bf16, int8 = (small(Mode.DECODE, "cpu", 1) for _ in range(2))
    apply_precision(bf16, Precision.BF16)
    apply_precision(int8, Precision.INT8WO)
    layers = layers_to_quantize(bf16.networks()["network"], Precision.INT8WO).values()
    saved = sum(layer.weight.numel() - 5 * layer.out_features for layer in layers)  # a scale and a zero of each row
    assert saved > 0
    assert bf16.bytes_read_per_step - int8.bytes_read_per_step == saved
    assert torch.isfinite(int8.decode_step()).all()


@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
def test_a_quantized_case_is_measured(tmp_path: Path, backend: str) -> None:
    code = TINY.replace("nn.Conv2d(3, 2, 3)", "nn.Conv2d(3, 8, 3)").replace("nn.Linear(8, 2)", "nn.Linear(32, 2)")
    measured = measure(
        tmp_path,
        code,
        mode=Mode.EVAL,
        backend=backend,
        precision=Precision.INT8WO,
        ask=(Pass.FLOPS, Pass.API, Pass.CHECK),
    )
    assert measured.precision_flags["quantized_layers"] == "1 of 1 Linear layers, 22% of parameters"
    assert measured.check is not None
    assert measured.check.status is CheckStatus.CORRECT, measured.check.reason
    assert measured.api is not None
    assert "aten::_to_copy" in measured.api.operators
    assert measured.flops is not None
    assert not measured.flops.without_formula


# --- the reference of the check ---


def test_our_int8_is_torchaos() -> None:
    layer = nn.Linear(48, 32).bfloat16()
    ours = int8_rounded(layer.weight.detach())
    torchao.quantize_(layer, torchao.quantization.Int8WeightOnlyConfig(set_inductor_config=False))
    theirs = layer.weight.qdata.double() * layer.weight.scale.double()
    steps = (ours - theirs).abs() / layer.weight.scale.double()
    assert float((steps > 0.01).double().mean()) < 0.01  # a number halfway between two may go either way
    assert float(steps.max()) < 1.01


def test_our_int4_is_torchaos() -> None:
    from torchao.quantization import quant_primitives as primitives

    weight = torch.randn(16, 256).bfloat16()
    block, limits = (1, quantization.INT4_GROUP), {"quant_min": 0, "quant_max": 15}
    scale, zero = primitives._choose_qparams_affine_tinygemm(
        weight,
        mapping_type=primitives.MappingType.ASYMMETRIC,
        block_size=block,
        target_dtype=torch.int32,
        scale_dtype=torch.bfloat16,
        zero_point_dtype=torch.bfloat16,
        **limits,
    )
    numbers = primitives._quantize_affine_tinygemm(weight, block, scale, zero, torch.int32, **limits)
    group_scale, group_zero = (one.reshape(16, 2, 1).double() for one in (scale, zero))
    theirs = ((numbers.reshape(16, 2, 128).double() - 8) * group_scale + group_zero).reshape(16, 256)
    steps = (int4_rounded(weight) - theirs).abs().reshape(16, 2, 128) / group_scale
    assert float((steps > 0.01).double().mean()) < 0.01
    assert float(steps.max()) < 1.1
    assert 0.2 < float((theirs - weight.double()).abs().reshape(16, 2, 128).max() / group_scale.max()) < 1


def test_our_float8_is_torchaos() -> None:
    from torchao.quantization import PerTensor
    from torchao.quantization.quantize_.workflows import Float8Tensor

    values = torch.randn(64, 64).bfloat16()
    theirs = Float8Tensor.from_hp(values, granularity=PerTensor()).dequantize(torch.float32)
    difference = float8_rounded(values.double(), torch.float8_e4m3fn) - theirs.double()
    assert float(difference.norm() / values.double().norm()) < 0.02  # some are rounded to the other neighbour
    assert 0.02 < float((theirs.double() - values.double()).norm() / values.double().norm()) < 0.05
