"""Adapters beside frozen layers, and the precision labels that are true of them."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from torchzoo.case import Case, Mode, NativeDtype, Precision
from torchzoo.measure.precision import LabelNotReached, apply_precision, check_precision, inspect_step
from torchzoo.model import Model
from torchzoo.zoo.catalog import find_models, load_model_class

SPEC = find_models().spec("llama3_8b_lora")


def small() -> Model:
    kind = load_model_class(SPEC).small()
    assert kind is not None
    return kind(Mode.TRAIN, "cpu", 1)


def test_an_adapter_adds_a_product_of_two_thin_matrices() -> None:
    model = small()
    adapted = model.network.model.layers[0].self_attn.k_proj  # type: ignore[attr-defined]
    linear: nn.Linear = adapted.linear
    x = torch.randn(5, linear.in_features, dtype=torch.bfloat16)
    assert torch.equal(adapted(x), linear(x))
    nn.init.normal_(adapted.b)
    weight = linear.weight.double() + 2.0 * adapted.b.double() @ adapted.a.double()  # alpha / rank = 2
    torch.testing.assert_close(adapted(x).double(), x.double() @ weight.T, rtol=0.05, atol=0.05)


def test_only_the_adapters_of_attention_are_trained() -> None:
    model = small()
    parameters = dict(model.networks()["network"].named_parameters())
    trained = {name for name, parameter in parameters.items() if parameter.requires_grad}
    assert len(trained) == 2 * 4 * 2  # layers, projections, A and B
    assert all(".self_attn." in name and name.endswith((".a", ".b")) for name in trained)
    before = {name: parameter.detach().clone() for name, parameter in parameters.items()}
    for _ in range(2):
        model.train_step()
    changed = {name for name, parameter in parameters.items() if not torch.equal(parameter, before[name])}
    assert changed <= trained
    assert {name for name in trained if name.endswith(".b")} <= changed
    assert all(parameters[name].grad is None for name in parameters.keys() - trained)


@pytest.mark.parametrize("precision", [Precision.BF16, Precision.FP32, Precision.FP16], ids=str)
def test_a_label_tells_the_dtype_of_frozen_weights_too(precision: Precision) -> None:
    assert not is_skipped(precision)
    model = small()
    apply_precision(model, precision)
    check_precision(model, precision, NativeDtype.FP32, inspect_step(model, model.train_step))


@pytest.mark.parametrize("precision", [Precision.DEFAULT, Precision.AMP_BF16], ids=str)
def test_labels_that_promise_fp32_weights_are_skipped_because_they_are_not_true(precision: Precision) -> None:
    assert is_skipped(precision)
    model = small()
    apply_precision(model, precision)
    with pytest.raises(LabelNotReached, match="is bfloat16"):
        check_precision(model, precision, NativeDtype.FP32, inspect_step(model, model.train_step))


def is_skipped(precision: Precision) -> bool:
    case = Case(model=SPEC.name, mode=Mode.TRAIN, device="cuda", precision=precision, batch_size=1)
    return any(rule.matches(case) for rule in SPEC.skips)
