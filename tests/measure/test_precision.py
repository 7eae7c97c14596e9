"""A small real model reaches a label or is refused: dtypes at each precision, memory format, backends."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn
from torch.distributions import Distribution

from torchzoo.backends import NotRunnable
from torchzoo.case import Backend, Case, CompileScope, MemoryFormat, Mode, NativeDtype, Precision
from torchzoo.measure.precision import (
    Inspection,
    LabelNotReached,
    apply_memory_format,
    apply_precision,
    check_precision,
    inspect_step,
)
from torchzoo.measure.variant import candidate_variant, eager_variant
from user_models import TINY, tiny_model


@pytest.mark.parametrize(("elements", "uses"), [(32_768, True), (32_767, False)])
def test_a_step_with_a_large_operand_on_the_cpu_uses_its_threads(tmp_path: Path, *, elements: int, uses: bool) -> None:
    model = tiny_model(tmp_path)
    moment = torch.zeros(elements)  # as an optimizer on the CPU has; in place, and without a result
    assert inspect_step(model, lambda: torch._foreach_add_([moment], 1.0)).uses_cpu_threads is uses


def case(backend: Backend, mode: Mode, scope: CompileScope = CompileScope.NETWORK) -> Case:
    return Case(model="tiny", mode=mode, device="cpu", backend=backend, batch_size=4, compile_scope=scope)


def test_views_casts_and_fills_compute_nothing(tmp_path: Path) -> None:
    model, numbers = tiny_model(tmp_path), torch.ones(4, 4)

    def moves() -> Any:
        half = numbers.to(torch.float16).view(16)[2:].clone()
        torch.zeros_like(half).copy_(half).fill_(1.0)
        return torch.empty(3, dtype=torch.float16), torch.arange(4).double() + 1.0

    assert inspect_step(model, moves).operator_dtypes == {"float64": 1}  # the sum alone
    assert inspect_step(model, lambda: numbers.to(torch.float16).exp()).operator_dtypes == {"float16": 1}
    assert inspect_step(model, lambda: torch._foreach_zero_([numbers])).operator_dtypes == {}


def test_what_operators_compute_in_place_and_do_not_return_counts(tmp_path: Path) -> None:
    model = tiny_model(tmp_path)
    half = [torch.ones(4, dtype=torch.float16) for _ in range(3)]
    assert inspect_step(model, lambda: torch._foreach_add_(half, 1.0)).operator_dtypes == {"float16": 3}
    weights = [torch.ones(4, requires_grad=True)]
    weights[0].grad = torch.ones(4)
    for option in ("foreach", "fused"):
        optimizer = torch.optim.SGD(weights, lr=0.1, **{option: True})  # type: ignore[arg-type]
        assert inspect_step(model, optimizer.step).operator_dtypes.keys() == {"float32"}


def test_autocast_that_only_casts_is_a_reasoned_skip(tmp_path: Path) -> None:
    model = tiny_model(tmp_path, mode=Mode.EVAL)
    apply_precision(model, Precision.AMP_BF16)
    casts = inspect_step(model, lambda: torch.ones(4, 4).exp().to(torch.bfloat16))
    with pytest.raises(NotRunnable, match="autocast to bfloat16 changes none"):
        check_precision(model, Precision.AMP_BF16, NativeDtype.FP32, casts)


def test_tf32_of_a_step_without_products_is_a_reasoned_skip(tmp_path: Path) -> None:
    model = tiny_model(tmp_path, mode=Mode.EVAL)
    own = inspect_step(model, model.eval_step)
    assert own.products == 2  # a convolution and a linear layer
    check_precision(model, Precision.TF32, NativeDtype.FP32, own)
    without = inspect_step(model, lambda: torch.ones(4, 4).exp())
    with pytest.raises(NotRunnable, match="TF32 is for matrix products"):
        check_precision(model, Precision.TF32, NativeDtype.FP32, without)


@pytest.mark.parametrize("mode", [Mode.TRAIN, Mode.EVAL])
@pytest.mark.parametrize("precision", [p for p in Precision if p is not Precision.TF32 and not p.is_quantized])
def test_the_dtype_of_the_label_is_really_there(tmp_path: Path, precision: Precision, mode: Mode) -> None:
    expected = {
        Precision.FP16: torch.float16,
        Precision.BF16: torch.bfloat16,
        Precision.FP64: torch.float64,
    }.get(precision, torch.float32)
    computed = {Precision.AMP: "bfloat16", Precision.AMP_BF16: "bfloat16", Precision.AMP_FP16: "float16"}
    model = tiny_model(tmp_path, mode=mode)
    flags = apply_precision(model, precision)
    step = model.train_step if mode is Mode.TRAIN else model.eval_step
    inspection = inspect_step(model, step)
    check_precision(model, precision, NativeDtype.FP32, inspection)

    assert {parameter.dtype for parameter in model.network.parameters()} == {expected}
    assert model.example_inputs[0].dtype is expected
    assert model.batch.targets.dtype is torch.int64
    dtypes = set(inspection.operator_dtypes)
    if precision in computed:
        assert computed[precision] in dtypes
        assert flags["autocast_dtype"] == computed[precision]
        assert flags["grad_scaler"] == ("on" if "float16" in dtypes and mode is Mode.TRAIN else "off")
    else:
        assert dtypes == {str(expected).removeprefix("torch.")}


def test_training_still_updates_the_weights_after_a_cast(tmp_path: Path) -> None:
    model = tiny_model(tmp_path)
    apply_precision(model, Precision.FP64)
    before = [parameter.detach().clone() for parameter in model.network.parameters()]
    model.train_step()
    assert all(not torch.equal(a, b) for a, b in zip(before, model.network.parameters(), strict=True))


@pytest.mark.parametrize("precision", [Precision.FP32, Precision.AMP_FP16])
def test_several_optimizers_make_the_update_of_one(tmp_path: Path, precision: Precision) -> None:
    one, several = tiny_model(tmp_path / "one"), tiny_model(tmp_path / "several")
    weights, biases = ([p for p in several.network.parameters() if (p.ndim > 1) is large] for large in (True, False))
    for model, groups in ((one, [[*one.network.parameters()]]), (several, [weights, biases])):
        apply_precision(model, precision)
        with model.autocast():
            loss = model.compute_loss(model.forward(), model.batch.targets)
        model.backward(loss)
        model.step(*(torch.optim.SGD(group, lr=0.1) for group in groups), max_grad_norm=1e-2)
    for parameter, other in zip(one.network.parameters(), several.network.parameters(), strict=True):
        torch.testing.assert_close(parameter, other, rtol=0, atol=0)


def test_fp32_turns_tf32_off_everywhere(tmp_path: Path) -> None:
    torch.set_float32_matmul_precision("high")
    flags = apply_precision(tiny_model(tmp_path), Precision.FP32)
    assert flags["float32_matmul_precision"] == "highest"
    assert flags["cudnn_allow_tf32"] == "False"


def test_tf32_on_the_cpu_is_refused_with_the_reason(tmp_path: Path) -> None:
    with pytest.raises(NotRunnable, match="Ampere"):
        apply_precision(tiny_model(tmp_path), Precision.TF32)


@pytest.mark.parametrize(
    ("addition", "words"),
    [
        ("    def build(self):\n        super().build()\n        self.extra = torch.zeros(3)\n", "data .* is float32"),
        (
            "    def build_network(self):\n"
            "        network = super().build_network()\n"
            "        network._apply = lambda *args, **kwargs: network\n"
            "        return network\n",
            "network.0.weight is float32",
        ),
    ],
)
def test_a_model_that_escapes_the_cast_is_not_measured_under_its_label(
    tmp_path: Path, addition: str, words: str
) -> None:
    code = TINY.replace("class Model(", "class Base(") + f"\n\nclass Model(Base):\n{addition}"
    model = tiny_model(tmp_path, code, Mode.EVAL)
    apply_precision(model, Precision.BF16)
    inspection = Inspection(calls={}, operator_dtypes={"bfloat16": 1})
    with pytest.raises(LabelNotReached, match=words):
        check_precision(model, Precision.BF16, NativeDtype.FP32, inspection)


def test_arithmetic_in_another_dtype_is_not_measured_under_the_label(tmp_path: Path) -> None:
    model = tiny_model(tmp_path, mode=Mode.EVAL)
    apply_precision(model, Precision.BF16)
    inspection = Inspection(calls={}, operator_dtypes={"float32": 9})
    with pytest.raises(LabelNotReached, match="computes in float32"):
        check_precision(model, Precision.BF16, NativeDtype.FP32, inspection)


def test_channels_last_reaches_weights_and_images(tmp_path: Path) -> None:
    model = tiny_model(tmp_path)
    apply_memory_format(model, MemoryFormat.CHANNELS_LAST)
    assert model.network[0].weight.is_contiguous(memory_format=torch.channels_last)
    assert model.example_inputs[0].is_contiguous(memory_format=torch.channels_last)


def test_channels_last_without_a_4d_weight_is_a_reasoned_skip(tmp_path: Path) -> None:
    model = tiny_model(tmp_path)
    model.network = nn.Linear(2, 2)
    with pytest.raises(NotRunnable, match="four dimensions"):
        apply_memory_format(model, MemoryFormat.CHANNELS_LAST)


BACKENDS = [
    (Backend("aot_eager"), Mode.TRAIN),
    (Backend("inductor"), Mode.TRAIN),
    (Backend("inductor", "max-autotune-no-cudagraphs"), Mode.EVAL),
    (Backend("torchscript"), Mode.TRAIN),
    (Backend("torchscript", "script"), Mode.EVAL),
    (Backend("export"), Mode.EVAL),
    (Backend("invoke_subgraph"), Mode.EVAL),  # any registered backend
]


@pytest.mark.parametrize(("backend", "mode"), BACKENDS, ids=str)
def test_a_backend_runs_the_same_weights_and_agrees_with_eager(tmp_path: Path, backend: Backend, mode: Mode) -> None:
    model = tiny_model(tmp_path, mode=mode)
    step = model.train_step if mode is Mode.TRAIN else model.eval_step
    inspection = inspect_step(model, step)
    eager = eager_variant(model, step)
    candidate = candidate_variant(model, step, case(backend, mode), inspection.take_calls())

    initial = {name: value.clone() for name, value in model.network.state_dict().items()}
    results = {}
    for variant in (eager, candidate):
        model.network.load_state_dict(initial)
        model.optimizer = model.build_optimizer()
        variant.select()
        assert (model.network._compiled_call_impl is None) == (variant is eager)
        first = variant.step()
        results[variant.name] = (first, [parameter.detach().clone() for parameter in model.network.parameters()])
    torch.testing.assert_close(results["eager"], results["candidate"])
    if mode is Mode.TRAIN:
        assert not torch.equal(results["candidate"][1][0], initial["0.weight"])


NETWORK_OF_ITS_OWN_CLASS = """

class Network(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(48, 2)

    def forward(self, x):
        return self.layer(x.flatten(1))
"""


def test_a_network_can_be_scripted_after_eager_has_run(tmp_path: Path) -> None:
    """TorchScript types every attribute of a module, so selecting eager must leave none behind."""
    code = re.sub(r"nn\.Sequential\(.*\)", "Network()", TINY) + NETWORK_OF_ITS_OWN_CLASS
    model = tiny_model(tmp_path, code=code)
    calls = inspect_step(model, model.train_step).take_calls()
    eager_variant(model, model.train_step).select()
    candidate = candidate_variant(model, model.train_step, case(Backend("torchscript", "script"), Mode.TRAIN), calls)
    candidate.select()
    candidate.step()
    assert model.network._compiled_call_impl is not None


def test_eager_checks_the_arguments_of_distributions_also_beside_a_compiled_network(tmp_path: Path) -> None:
    """Which `torch.compile` ends for the whole process."""
    Distribution.set_default_validate_args(True)
    torch._dynamo.eval_frame.TorchPatcher.patch.cache_clear()  # as in a process that has compiled nothing
    model = tiny_model(tmp_path, mode=Mode.EVAL)
    calls = inspect_step(model, model.eval_step).take_calls()
    eager = eager_variant(model, model.eval_step)
    candidate = candidate_variant(model, model.eval_step, case(Backend("aot_eager"), Mode.EVAL), calls)
    checked = []
    for variant in (eager, candidate, eager, candidate):
        variant.select()
        checked.append(Distribution._validate_args)
    assert checked == [True, False, True, False]


def test_a_step_that_calls_no_network_has_nothing_to_compile(tmp_path: Path) -> None:
    code = TINY + "\n    def eval_step(self):\n        return self.network.forward(*self.batch.inputs)\n"
    model = tiny_model(tmp_path, code, Mode.EVAL)
    inspection = inspect_step(model, model.eval_step)
    with pytest.raises(LabelNotReached, match="calls none of its networks"):
        candidate_variant(model, model.eval_step, case(Backend("aot_eager"), Mode.EVAL), inspection.take_calls())
