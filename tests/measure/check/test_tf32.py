"""What TF32 may do to a result counts as rounding, and nothing beyond it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from classifier import Classifier, check
from functorch.compile import make_boxed_func
from torch import Tensor, nn
from torch._dynamo.backends.common import aot_autograd
from torch.nn import functional as F

from torchzoo.case import Mode, Precision
from torchzoo.measure.check.rounding import RoundedProducts, rounded_to_tf32
from torchzoo.model.tasks import Batch
from torchzoo.record import CheckStatus

UNIT = 2.0**-10  # from 1 to the next number of TF32


def test_numbers_become_the_nearest_that_tf32_has() -> None:
    values = torch.tensor([1.0, 1 + 0.4 * UNIT, 1 + 0.6 * UNIT, -1 - 0.6 * UNIT, 0.0, float("inf"), 2 - 0.1 * UNIT])
    assert rounded_to_tf32(values).tolist() == [1.0, 1.0, 1 + UNIT, -1 - UNIT, 0.0, float("inf"), 2.0]
    assert rounded_to_tf32(torch.tensor([float("nan")])).isnan().all()
    random = torch.randn(1000)
    assert ((rounded_to_tf32(random) - random).abs() <= UNIT / 2 * random.abs()).all()


@pytest.mark.parametrize("mode", [torch.no_grad, torch.inference_mode])
def test_operands_are_rounded_without_gradients_too(mode: Callable[[], Any]) -> None:
    x, weight, bias = torch.randn(2, 3, 4), torch.randn(5, 4), torch.randn(5)
    with mode(), RoundedProducts():
        found = [F.linear(x, weight, bias), torch.einsum("bij,kj->bik", x, weight)]
    x, weight = rounded_to_tf32(x), rounded_to_tf32(weight)
    torch.testing.assert_close(found, [F.linear(x, weight, bias), F.linear(x, weight)])


def test_sparse_operands_stay() -> None:
    sparse, dense = torch.eye(3).to_sparse(), torch.randn(3, 2)
    with RoundedProducts():
        assert torch.equal(sparse @ dense, rounded_to_tf32(dense))


def test_other_dtypes_stay() -> None:
    for dtype in (torch.float64, torch.bfloat16, torch.int64):
        values = torch.arange(5, dtype=dtype)
        assert rounded_to_tf32(values) is values


def test_a_transposed_matrix_keeps_its_shape() -> None:
    matrix = torch.randn(3, 5).t()
    assert torch.equal(rounded_to_tf32(matrix), rounded_to_tf32(matrix.contiguous()))


def _loss_and_gradients(x: Tensor, weight: Tensor, bias: Tensor, product: Callable[..., Tensor]) -> list[Tensor]:
    leaves = [x.clone().requires_grad_(), weight.clone().requires_grad_(), bias.clone().requires_grad_()]
    out = product(*leaves)
    return [out.detach(), *torch.autograd.grad(out, leaves, torch.full_like(out, 1 + 0.4 * UNIT))]


@pytest.mark.parametrize(
    ("product", "x", "weight"),
    [
        (F.linear, (4, 6), (5, 6)),
        (F.conv2d, (2, 6, 8, 8), (5, 6, 3, 3)),
        (F.conv_transpose2d, (2, 6, 8, 8), (6, 5, 3, 3)),
    ],
)
def test_operands_of_products_are_rounded_forward_and_backward_and_biases_are_not(
    product: Callable[..., Tensor], x: tuple[int, ...], weight: tuple[int, ...]
) -> None:
    tensors = torch.randn(x), torch.randn(weight), torch.randn(5)
    with RoundedProducts():
        out, of_x, of_weight, of_bias = _loss_and_gradients(*tensors, product)
    rounded = [rounded_to_tf32(tensors[0]), rounded_to_tf32(tensors[1]), tensors[2]]
    expected = _loss_and_gradients(*rounded, product)
    torch.testing.assert_close(out, expected[0])
    factor = 1 + 0.4 * UNIT  # of what comes from behind; TF32 rounds it to 1
    torch.testing.assert_close(of_x, expected[1] / factor, rtol=1e-5, atol=1e-5)
    torch.testing.assert_close(of_weight, expected[2] / factor, rtol=1e-5, atol=1e-4)
    torch.testing.assert_close(of_bias, expected[3], rtol=1e-5, atol=0)


class Cancelling(Classifier):
    """Says which of five places is the right one. A bias that is the same for all places has no part in that.

    So the gradients of both biases are zero: sums of terms that cancel, whatever the weights are.
    """

    def build_network(self) -> nn.Module:
        return nn.Sequential(nn.Linear(6, 16), nn.Linear(16, 1), nn.Flatten(1))

    def build_batch(self) -> Batch:
        return Batch((self.data.uniform(self.batch_size, 5, 6),), self.data.labels(self.batch_size, 5))


def _compiler(run: Callable[..., Any]) -> Callable[..., Any]:
    """A backend that runs the graphs of the forward and of the backward pass with `run(graph, arguments)`."""

    def compiled(graph: torch.fx.GraphModule, _: Any) -> Any:
        return make_boxed_func(lambda *arguments: run(graph, arguments))

    def compiler(graph: torch.fx.GraphModule, inputs: Any) -> Any:
        return aot_autograd(fw_compiler=compiled, bw_compiler=compiled)(graph, inputs)

    return compiler


def lets_all_products_use_tf32(graph: torch.fx.GraphModule, arguments: Any) -> Any:
    with RoundedProducts():
        return graph(*arguments)


def is_off_by_five_percent(graph: torch.fx.GraphModule, arguments: Any) -> Any:
    """More than TF32 explains."""
    results = lets_all_products_use_tf32(graph, arguments)
    return [one if one is None else 1.05 * one for one in results]


@pytest.mark.usefixtures("_a_device_with_tf32")
@pytest.mark.parametrize(
    ("run", "status"),
    [(lets_all_products_use_tf32, CheckStatus.CORRECT), (is_off_by_five_percent, CheckStatus.INCORRECT)],
)
def test_a_backend_may_use_tf32_where_eager_does_not(
    backend: Callable[..., str], run: Callable[..., Any], status: CheckStatus
) -> None:
    found = check(Cancelling, Mode.TRAIN, backend(_compiler(run)))
    assert (found.status, found.judged_at) == (status, None), found


def test_at_fp32_a_backend_may_not_use_tf32(backend: Callable[..., str]) -> None:
    found = check(Cancelling, Mode.TRAIN, backend(_compiler(lets_all_products_use_tf32)), precision=Precision.FP32)
    assert found.status is CheckStatus.INCORRECT, found
