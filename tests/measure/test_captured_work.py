"""The work of what Dynamo captures, beside eager's: operations, bytes of products, attention. Other work is refused."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import msgspec
import pytest
import torch
import torch._dynamo
from torch import Tensor, nn
from torch.nn import functional as F

import examples
from torchzoo.analysis.refusals import WORK_LIMIT, refusals
from torchzoo.case import Backend, Mode
from torchzoo.measure.passes.flops import count_captured_work, count_work
from torchzoo.model.tasks import Batch, SupervisedModel
from torchzoo.record import Flops


class Branching(nn.Module):
    """Does what `eager` says, and when Dynamo traces it, what `traced` says."""

    def __init__(self, eager: Callable[..., Tensor], traced: Callable[..., Tensor]) -> None:
        super().__init__()
        self.inside, self.outside = nn.Linear(8, 8), nn.Linear(8, 8)
        self.eager, self.traced = eager, traced

    def forward(self, x: Tensor) -> Tensor:
        x = self.inside(x)  # (B, T, C)
        x = self.traced(x) if torch.compiler.is_compiling() else self.eager(x)
        out: Tensor = self.outside(x)
        return out


class Model(SupervisedModel):
    network_of: Callable[[], nn.Module]

    def build_network(self) -> nn.Module:
        return type(self).network_of()

    def build_batch(self) -> Batch:
        return Batch((self.data.uniform(self.batch_size, 16, 8),), self.data.uniform(self.batch_size, 16, 8))

    def compute_loss(self, outputs: Tensor, targets: Tensor) -> Tensor:
        return F.mse_loss(outputs, targets)


def work(eager: Callable[..., Tensor], traced: Callable[..., Tensor], mode: Mode = Mode.EVAL) -> tuple[Flops, Flops]:
    made = type("Made", (Model,), {"network_of": staticmethod(partial(Branching, eager, traced))})
    model = made(mode, torch.device("cpu"), 2, seed=0)
    case = msgspec.structs.replace(examples.CASE, mode=mode, backend=Backend("inductor"))
    return count_work(model.measured_step), count_captured_work(model, model.measured_step, case)


def why_refused(flops: tuple[Flops, Flops], reason: str = "") -> list[str]:
    eager, captured = flops
    case = msgspec.structs.replace(examples.compiled(), flops=eager, candidate_flops=captured, unequal_work=reason)
    return refusals(case)


def attend(x: Tensor, *, keys: Tensor | None = None, heads: int = 2, kv_heads: int = 2, **options: object) -> Tensor:
    def split(y: Tensor, count: int) -> Tensor:
        return y.unflatten(-1, (heads, -1))[:, :, :count].transpose(1, 2)

    keys = x if keys is None else keys
    key, value = split(2 * keys, kv_heads), split(3 * keys, kv_heads)
    found = F.scaled_dot_product_attention(split(x, heads), key, value, **options)  # type: ignore[arg-type]
    return found.transpose(1, 2).flatten(2)


def masked(x: Tensor) -> Tensor:
    return attend(x, attn_mask=torch.ones(16, 16, dtype=torch.bool).tril())


def float_masked(x: Tensor) -> Tensor:
    return attend(x, attn_mask=torch.zeros(16, 16))


causal = partial(attend, is_causal=True)


def over_whole_cache(x: Tensor) -> Tensor:
    return attend(x, keys=F.pad(x, (0, 0, 0, 16)))


def repeated(x: Tensor) -> Tensor:
    return attend(x, heads=4, kv_heads=4)


def grouped(x: Tensor) -> Tensor:
    return attend(x, heads=4, kv_heads=2, enable_gqa=True)


def twice(x: Tensor) -> Tensor:
    return attend(attend(x))


def product(x: Tensor) -> Tensor:
    return x @ x.transpose(1, 2) @ x


def larger_product(x: Tensor) -> Tensor:
    return product(torch.cat([x, x], dim=1))[:, :16]


def unfused(x: Tensor) -> Tensor:
    return torch.softmax(x @ x.transpose(1, 2) / 8**0.5, dim=-1) @ x


def split_products(x: Tensor) -> Tensor:
    """As many operations as `product`, with more bytes: the right operand of one of them is read twice."""
    left = torch.cat([half @ x.transpose(1, 2) for half in x.chunk(2, dim=1)], dim=1)
    return left @ x


@pytest.mark.parametrize("mode", [Mode.EVAL, Mode.TRAIN])
@pytest.mark.parametrize("of_both", [attend, causal, masked, grouped, product, unfused])
def test_a_network_that_does_the_same_when_traced_has_the_same_work(of_both: Callable[..., Tensor], mode: Mode) -> None:
    eager, captured = found = work(of_both, of_both, mode)
    assert captured.total == eager.total > 0
    assert captured.attention == eager.attention
    assert why_refused(found) == []


@pytest.mark.parametrize(
    ("eager", "traced"),
    [
        (causal, masked),
        (causal, attend),
        (attend, float_masked),
        (attend, over_whole_cache),
        (grouped, repeated),
        (attend, twice),
        (attend, unfused),
        (product, larger_product),
        (product, torch.relu),
        (product, split_products),
    ],
)
def test_a_network_that_does_other_work_when_traced_is_refused(
    eager: Callable[..., Tensor], traced: Callable[..., Tensor]
) -> None:
    found = work(eager, traced)
    (why,) = why_refused(found)
    assert why.startswith("the variants ")
    if (eager, traced) == (causal, masked):  # the arguments of attention that differ are named
        assert all(words in why for words in ("eager 1 x", "candidate 1 x", "not causal, mask of"))
    assert why_refused(found, reason="its paper says so") == []


@pytest.mark.parametrize(("factor", "is_refused"), [(1 + 0.9 * WORK_LIMIT, False), (1 + 1.1 * WORK_LIMIT, True)])
@pytest.mark.parametrize("figure", ["total", "product_bytes"])
def test_a_small_difference_is_none(figure: str, factor: float, is_refused: bool) -> None:  # noqa: FBT001
    eager = Flops(total=10**6, by_operator={}, product_bytes=10**6)
    captured = msgspec.structs.replace(eager, **{figure: round(10**6 * factor)})
    assert bool(why_refused((eager, captured))) == is_refused


def test_what_was_compiled_before_does_not_hide_work() -> None:
    """The graphs for the case's own backend count against the same limit of recompilations."""
    with torch._dynamo.config.patch(recompile_limit=1):
        made = type("Made", (Model,), {"network_of": staticmethod(partial(Branching, causal, masked))})
        model = made(Mode.EVAL, torch.device("cpu"), 2, seed=0)
        torch.compile(model.network._call_impl, backend="eager")(*model.batch.inputs)
        case = msgspec.structs.replace(examples.CASE, backend=Backend("inductor"))
        eager = count_work(model.measured_step)
        assert why_refused((eager, count_captured_work(model, model.measured_step, case)))
