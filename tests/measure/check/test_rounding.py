"""What compiled code rounds otherwise than eager is not called wrong, and what is wrong beside it still is."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec
import pytest
import torch
from classifier import CPU, is_right, with_scaled_gradient
from torch import Tensor, nn
from torch.nn import functional as F

from examples import CASE, SPEC
from torchzoo.case import Backend, Mode, Precision, ResultKind
from torchzoo.measure.check.check_case import check_case
from torchzoo.measure.check.rounding import perturbed_activations
from torchzoo.measure.check.runs import Runs
from torchzoo.model import Model
from torchzoo.model.tasks import Batch, SupervisedModel
from torchzoo.record import Check, CheckStatus


class _Normalize(torch.autograd.Function):
    """Batch normalization at fp64. With `mean_first`, its numbers are rounded after their mean is taken."""

    @staticmethod
    def forward(context: Any, x: Tensor, stored: Tensor, mean_first: bool) -> Tensor:  # noqa: FBT001
        numbers = x if mean_first else stored.double()
        mean, deviation = numbers.mean(0), numbers.std(0, correction=0)
        context.save_for_backward(stored, mean, deviation)
        return (numbers - mean) / deviation

    @staticmethod
    def backward(context: Any, gradient: Tensor) -> tuple[Tensor, None, None]:
        stored, mean, deviation = context.saved_tensors
        x = (stored.double() - mean) / deviation
        found = (gradient - gradient.mean(0) - x * (gradient * x).mean(0)) / deviation
        return found.to(stored.dtype).double(), None, None


class _Shifted(nn.Module):
    """A large shift before a normalization: its gradient is zero but for rounding to float16.

    It computes at fp64 and rounds by itself, so that each processor finds the same. If compiled, it takes the mean of
    numbers that are rounded afterwards, as inductor's kernels do.
    """

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Linear(16, 32, bias=False)
        self.shift = nn.Parameter(torch.full((32,), 30.0))
        self.scale, self.bias = nn.Parameter(torch.ones(32)), nn.Parameter(torch.zeros(32))
        self.last = nn.Linear(32, 10)

    def forward(self, x: Tensor) -> Tensor:
        is_rounded = torch.is_autocast_enabled("cpu")
        with torch.autocast("cpu", enabled=False):
            y = F.linear(x.double(), self.first.weight.double()) + self.shift.double()
            stored = y.detach().half() if is_rounded else y.detach()
            y = _Normalize.apply(y, stored, torch.compiler.is_compiling())
            y = torch.relu(y * self.scale.double() + self.bias.double())
            return F.linear(y, self.last.weight.double(), self.last.bias.double())


class Shifted(SupervisedModel):
    def build_network(self) -> nn.Module:
        return _Shifted()

    def build_batch(self) -> Batch:
        return Batch((self.data.uniform(self.batch_size, 16),), self.data.labels(self.batch_size, 10))

    def compute_loss(self, outputs: Tensor, targets: Tensor) -> Tensor:
        return F.cross_entropy(outputs, targets)


class PerSample(Shifted):
    """Its gradients come from `torch.func`, which allows no hooks on what autograd keeps."""

    def compute_loss(self, outputs: Tensor, targets: Tensor) -> Tensor:
        torch.func.grad(lambda x: (x * x).sum())(outputs.detach())
        return super().compute_loss(outputs, targets)


def _check(name: str, precision: Precision = Precision.AMP_FP16, model_class: type[Model] = Shifted) -> Check:
    case = msgspec.structs.replace(
        CASE, mode=Mode.TRAIN, backend=Backend(name, None), batch_size=64, precision=precision
    )
    return check_case(case, SPEC, model_class, CPU)


def _gradients(found: Check) -> Any:
    return next(one for one in found.comparisons if one.what is ResultKind.GRADIENTS)


def test_a_mean_of_numbers_that_are_rounded_afterwards_is_no_fault(monkeypatch: pytest.MonkeyPatch) -> None:
    found = _check("aot_eager")
    assert found.status in (CheckStatus.CORRECT, CheckStatus.PARTLY_CORRECT), found
    assert _gradients(found).worst == "network.shift"
    assert _gradients(found).error > 10 * _gradients(found).eager_error

    monkeypatch.setattr(Runs, "keeps_coarse_activations", False)
    assert _check("aot_eager").status is CheckStatus.INCORRECT


def _scales_a_gradient(graph: torch.fx.GraphModule, _: Any) -> Callable[..., Any]:
    return lambda *args: tuple(with_scaled_gradient(output, 1.3) for output in graph(*args))


def test_what_is_wrong_beside_it_is_found(backend: Callable[..., str]) -> None:
    found = _check(backend(_scales_a_gradient))
    assert found.status is CheckStatus.INCORRECT, found
    assert _gradients(found).tensors_wrong >= 3, "what rounding may do here hides the whole fault"
    assert _check(backend(is_right)).status in (CheckStatus.CORRECT, CheckStatus.PARTLY_CORRECT)


def test_where_a_step_allows_no_such_change_nothing_is_excused(backend: Callable[..., str]) -> None:
    case = msgspec.structs.replace(CASE, mode=Mode.TRAIN, batch_size=64, precision=Precision.AMP_FP16)
    runs = Runs(case=case, spec=SPEC, model_class=PerSample, device=CPU)
    runs.eager()
    assert runs.perturbed_backward(0) is None
    assert _check(backend(_scales_a_gradient), model_class=PerSample).status is CheckStatus.INCORRECT


@pytest.mark.parametrize("precision", [Precision.FP32, Precision.TF32, Precision.FP64])
def test_other_precisions_keep_what_they_computed(precision: Precision) -> None:
    case = msgspec.structs.replace(CASE, mode=Mode.TRAIN, precision=precision)
    assert not Runs(case=case, spec=SPEC, model_class=Shifted, device=CPU).keeps_coarse_activations


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_the_backward_pass_alone_reads_other_numbers(dtype: torch.dtype) -> None:
    parameter = torch.linspace(1, 2, 4096, dtype=dtype, requires_grad=True)
    x = parameter.clone()
    epsilon = torch.finfo(dtype).eps
    gradients = []
    for seed in (0, 0, 1):
        with perturbed_activations(epsilon, seed):
            y = x * x
            assert torch.equal(y, x.detach() * x.detach())
            gradients.append(torch.autograd.grad(y.sum(), x)[0])
    first, again, other = gradients
    assert torch.equal(first, again)
    assert not torch.equal(first, other)
    off = (first.double() / (2 * x.detach().double()) - 1).abs()
    assert 0.3 < (off > 0).double().mean() < 0.9
    assert off.max() <= 2 * epsilon
    with perturbed_activations(epsilon, 0):
        (of_parameter,) = torch.autograd.grad((parameter * parameter).sum(), parameter)
    assert torch.equal(of_parameter, 2 * parameter)


def test_single_precision_and_gradients_of_gradients_stay() -> None:
    x = torch.linspace(1, 2, 64, requires_grad=True)
    with perturbed_activations(2.0**-10, 0):
        (gradient,) = torch.autograd.grad((x**3).sum(), x, create_graph=True)
        (second,) = torch.autograd.grad(gradient.sum(), x)
    torch.testing.assert_close(gradient, 3 * x**2)
    torch.testing.assert_close(second, 6 * x)
