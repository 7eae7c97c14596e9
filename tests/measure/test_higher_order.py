"""Steps with higher-order operators are seen from inside: by the contract, the precision, the check, the counts."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
import torch._dynamo
from torch import Tensor, nn
from torch._higher_order_ops import associative_scan, scan, while_loop
from torch._higher_order_ops.flex_attention import flex_attention as flex_attention_operator
from torch.nn.attention.flex_attention import BlockMask, create_block_mask, flex_attention
from torch.utils.checkpoint import checkpoint

from examples import CASE, SPEC
from torchzoo.case import Mode, NativeDtype, Precision
from torchzoo.measure.check.check_case import check_case
from torchzoo.measure.check.randomness import RecordRandomDraws, ReplayRandomDraws
from torchzoo.measure.check.rounding import RoundedProducts
from torchzoo.measure.passes.api import step_api
from torchzoo.measure.passes.flops import count_work
from torchzoo.measure.precision import apply_precision, check_precision, inspect_step
from torchzoo.model import Model
from torchzoo.model.tasks import Batch, SupervisedModel
from torchzoo.record import CheckStatus
from torchzoo.zoo import contract
from torchzoo.zoo.waiting import synchronising_operators

CPU = torch.device("cpu")
WIDTH = 16


class Network(nn.Module):
    def __init__(self, compute: Callable[[Any, Tensor], Tensor]) -> None:
        super().__init__()
        self.linear, self.other = nn.Linear(WIDTH, WIDTH), nn.Linear(WIDTH, WIDTH)
        self.compute = compute

    def forward(self, x: Tensor) -> Tensor:
        return self.compute(self, x)


def model_of(compute: Callable[[Any, Tensor], Tensor]) -> type[SupervisedModel]:
    class Kind(SupervisedModel):
        def build_network(self) -> nn.Module:
            return Network(compute)

        def build_batch(self) -> Batch:
            return Batch((self.data.normal(self.batch_size, WIDTH),))

        def compute_loss(self, outputs: Tensor, _: Any) -> Tensor:
            return outputs.square().mean()

    return Kind


def causal(tokens: int, block: int = 128) -> BlockMask:
    return create_block_mask(lambda _b, _h, q, k: q >= k, None, None, tokens, tokens, device="cpu", BLOCK_SIZE=block)


def heads(x: Tensor) -> Tensor:
    """(B, WIDTH) to (1, 2, B, WIDTH / 2): the batch is the sequence."""
    return x.view(1, len(x), 2, -1).transpose(1, 2)


def attend(n: Any, x: Tensor, **options: Any) -> Tensor:
    y = flex_attention(heads(n.linear(x)), heads(n.other(x)), heads(x), **options)
    return y.transpose(1, 2).reshape(x.shape)


def condition(n: Any, x: Tensor) -> Tensor:
    """Both layers are among the operands of the branches, which Dynamo finds."""
    return torch.cond(x.sum() > 1e9, lambda x: n.linear(x).sin(), lambda x: n.other(n.linear(x)).cos(), (x,))


def loop(n: Any, x: Tensor) -> Tensor:
    first = torch.zeros((), dtype=torch.int64)
    return while_loop(lambda i, _: i < 3, lambda i, y: (i + 1, n.linear(y)), (first, x))[1]


WITHOUT_GRADIENTS = {
    "attention": model_of(attend),
    "causal attention": model_of(lambda n, x: attend(n, x, block_mask=causal(len(x)))),
    "attention with a bias": model_of(lambda n, x: attend(n, x, score_mod=lambda s, _b, _h, q, k: s + (q - k))),
    "a loop": model_of(loop),
    "two conditions": model_of(lambda n, x: condition(n, condition(n, x))),
    "an associative scan": model_of(
        lambda n, x: associative_scan(lambda a, b: a * b, n.linear(x), 0, combine_mode="generic")
    ),
    "a scan": model_of(lambda n, x: scan(lambda c, y: (c + y, c * y), x.new_zeros(WIDTH), n.linear(x))[1]),
}
WITH_GRADIENTS = {
    "a condition": model_of(condition),
    "a condition of a number": model_of(
        lambda n, x: torch.cond(True, lambda x: n.other(n.linear(x)), lambda x: x, (x,))  # noqa: FBT003
    ),
    "a checkpoint": model_of(lambda n, x: checkpoint(lambda x: n.other(n.linear(x)).sin(), x, use_reentrant=False)),
}
CASES = [
    *(pytest.param(model, Mode.TRAIN, id=f"{name}, trained") for name, model in WITH_GRADIENTS.items()),
    *(pytest.param(model, Mode.EVAL, id=name) for name, model in (WITH_GRADIENTS | WITHOUT_GRADIENTS).items()),
]


@pytest.fixture(autouse=True)
def _quiet() -> Iterator[None]:
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="flex_attention called without")
        yield
    torch._dynamo.reset()


@pytest.mark.parametrize(("model_class", "mode"), CASES)
def test_a_step_is_proven_inspected_counted_and_checked(model_class: type[Model], mode: Mode) -> None:
    model = model_class(mode, CPU, 4)
    expected = model_class(mode, CPU, 4).measured_step()
    with synchronising_operators():
        outputs = model.measured_step()
    assert torch.allclose(outputs, expected)
    if mode is Mode.TRAIN:
        fresh = model_class(mode, CPU, 4)
        before = contract.copied(contract.trainable_parameters(fresh))
        assert contract._check_changes(fresh, SPEC, before) == []
    model = model_class(mode, CPU, 4)
    apply_precision(model, Precision.FP64)
    inspection = inspect_step(model, model.measured_step)
    check_precision(model, Precision.FP64, NativeDtype.FP32, inspection)
    assert inspection.products >= 1
    work = count_work(model.measured_step)
    assert work.total >= 2 * 4 * WIDTH * WIDTH
    assert work.without_formula == {}


@pytest.mark.parametrize("name", ["a condition", "causal attention"])
def test_results_are_checked(name: str) -> None:
    model_class = (WITH_GRADIENTS | WITHOUT_GRADIENTS)[name]
    case = CASE if name in WITHOUT_GRADIENTS else type(CASE)(model="tiny", mode=Mode.TRAIN, device="cpu", batch_size=4)
    found = check_case(case, SPEC, model_class, CPU)
    assert found.status is CheckStatus.CORRECT, found


# --- what is seen inside ---


@torch.no_grad()
def test_the_branch_that_ran_is_counted() -> None:
    weight, x = torch.randn(8, 8), torch.randn(4, 8)
    one = 2 * 4 * 8 * 8

    def step(*, positive: bool) -> Tensor:
        bound = -1e9 if positive else 1e9
        return torch.cond(x.sum() > bound, lambda x: x @ weight, lambda x: x @ weight @ weight, (x,))

    assert count_work(lambda: step(positive=True)).total == one
    assert count_work(lambda: step(positive=False)).total == 2 * one
    first = torch.zeros((), dtype=torch.int64)
    turns = count_work(lambda: while_loop(lambda i, _: i < 3, lambda i, y: (i + 1, y @ weight), (first, x)))
    assert turns.by_operator == {"aten::mm": {"float32": 3 * one}}


def test_reading_a_predicate_waits_for_the_device() -> None:
    x = torch.randn(4)
    with torch.no_grad(), synchronising_operators() as seen:
        torch.cond(x.sum() > 0, lambda x: x.sin(), lambda x: x.cos(), (x,))
    assert seen == {"the predicate of cond"}


def test_products_inside_are_rounded_to_tf32() -> None:
    model = WITH_GRADIENTS["a condition"](Mode.EVAL, CPU, 4)
    exact = model.measured_step()
    with RoundedProducts():
        rounded = model.measured_step()
    assert 1e-6 < (rounded - exact).norm() / exact.norm() < 1e-2


def test_complex_products_are_rounded_to_tf32() -> None:
    a, b = torch.randn(2, 8, 8, dtype=torch.complex64)
    with RoundedProducts():
        rounded = a @ b
    error = torch.view_as_real(rounded - a @ b)
    assert 1e-5 < error[..., 0].norm() < 0.1
    assert 1e-5 < error[..., 1].norm() < 0.1


def test_what_is_drawn_inside_is_replayed() -> None:
    x = torch.ones(3)

    def step() -> Tensor:
        return torch.cond(x.sum() > 0, lambda x: x + torch.rand_like(x), lambda x: x.cos(), (x,))

    with torch.no_grad():
        with RecordRandomDraws() as drawn:
            first = step()
        with ReplayRandomDraws(drawn.draws):
            second = step()
    assert len(drawn.draws) == 1
    assert torch.equal(first, second)


def test_the_api_has_the_operator_and_those_inside() -> None:
    x = torch.ones(3)
    with torch.no_grad():
        surface = step_api(lambda: torch.cond(x.sum() > 0, lambda x: x.sin(), lambda x: x.cos(), (x,)))
    assert {"higher_order::cond", "aten::sin"} <= set(surface.operators)


def test_nested_tensors_are_seen_as_what_is_inside() -> None:
    rows = torch.nested.nested_tensor([torch.ones(2, 4), torch.ones(3, 4)], layout=torch.jagged)
    work = count_work(lambda: rows @ torch.ones(4, 4))
    assert work.total == 2 * 5 * 4 * 4


# --- FlexAttention's operations ---


def unchanged(score: Tensor, *_: Tensor) -> Tensor:
    return score


def flex(tokens: int, mask: BlockMask, *, heads: int = 2, kv_heads: int = 2, batch: int = 1) -> int:
    query = torch.randn(batch, heads, tokens, 8)
    key, value = torch.randn(2, batch, kv_heads, tokens, 8)
    work = count_work(lambda: flex_attention_operator(query, key, value, unchanged, mask.as_tuple(), 1.0, {}))
    assert work.without_formula == {}
    assert list(work.by_operator) == ["higher_order::flex_attention"]
    return work.total


def of_pairs(pairs: int, heads: int = 2) -> int:
    return 4 * pairs * 8 * heads


def test_kept_blocks_are_counted() -> None:
    everything = create_block_mask(lambda _b, _h, q, _k: q >= 0, None, None, 256, 256, device="cpu")
    assert flex(256, everything) == of_pairs(256 * 256)
    assert flex(256, causal(256)) == of_pairs(3 * 128 * 128)  # the masked part of a kept block counts
    assert flex(256, causal(256, block=64)) == of_pairs(10 * 64 * 64)
    assert flex(256, causal(256), batch=3) == 3 * of_pairs(3 * 128 * 128)
    assert flex(256, causal(256), heads=4, kv_heads=2) == of_pairs(3 * 128 * 128, heads=4)
    assert flex(200, causal(200)) == of_pairs(128 * 128 + 72 * 128 + 72 * 72)  # the last blocks are cut


def test_each_document_and_each_head_has_blocks_of_its_own() -> None:
    documents = torch.arange(512) // 128

    def inside(_b: Tensor, _h: Tensor, q: Tensor, k: Tensor) -> Tensor:
        return documents[q] == documents[k]

    mask = create_block_mask(inside, None, None, 512, 512, device="cpu")
    assert flex(512, mask) == of_pairs(4 * 128 * 128)
    per_head = create_block_mask(lambda _b, h, q, k: (h == 0) | (q // 128 == k // 128), 1, 2, 256, 256, device="cpu")
    assert flex(256, per_head) == of_pairs(4 * 128 * 128 + 2 * 128 * 128, heads=1)


def test_the_backward_pass_has_five_products_for_two() -> None:
    mask = causal(256)
    query, key, value = (torch.randn(1, 2, 256, 8, requires_grad=True) for _ in range(3))

    def step() -> None:
        flex_attention_operator(query, key, value, unchanged, mask.as_tuple(), 1.0, {})[0].sum().backward()

    counted = count_work(step).by_operator
    forward = of_pairs(3 * 128 * 128)
    assert counted["higher_order::flex_attention"] == {"float32": forward}
    assert counted["higher_order::flex_attention_backward"] == {"float32": 5 * forward // 2}


def test_what_can_not_be_counted_is_named() -> None:
    mask = causal(256)
    mask.kv_num_blocks = mask.kv_num_blocks.to("meta")
    query = torch.randn(1, 2, 256, 8, device="meta")
    work = count_work(lambda: flex_attention_operator(query, query, query, unchanged, mask.as_tuple(), 1.0, {}))
    assert (work.total, work.without_formula) == (0, {"higher_order::flex_attention": 1})


# --- a whole case ---
