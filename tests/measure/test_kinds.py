"""Complex, nested and sparse tensors, and dataclasses: what small models of each have is cast, counted and compared.

Each variant is a network and its inputs. Where the network's result is no loss, the norm of its numbers is.
"""

from __future__ import annotations

import dataclasses
import warnings
from collections import UserDict, namedtuple
from collections.abc import Callable, Iterator
from typing import Any

import msgspec
import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.utils._pytree import tree_leaves

from examples import CASE, SPEC
from torchzoo.backends import NotRunnable
from torchzoo.case import Backend, Mode, NativeDtype, Precision
from torchzoo.measure.check.check_case import check_case
from torchzoo.measure.passes.flops import count_work
from torchzoo.measure.precision import LabelNotReached, apply_precision, check_precision, inspect_step
from torchzoo.model import Model
from torchzoo.model.data import SyntheticData
from torchzoo.model.tasks import Batch, SupervisedModel
from torchzoo.model.tensors import is_finite, is_inexact, same, stored_bytes, stored_numbers, tensors_in
from torchzoo.record import Check, CheckStatus
from torchzoo.zoo import contract

CPU = torch.device("cpu")
C64 = torch.complex64


class Variant(nn.Module):
    """A linear layer, and what a function makes of its outputs (B, 8)."""

    def __init__(self, compute: Callable[..., Any], **more: Tensor) -> None:
        super().__init__()
        self.linear = nn.Linear(8, 8)
        self.compute = compute
        for name, tensor in more.items():
            if is_inexact(tensor) and tensor.requires_grad:
                self.register_parameter(name, nn.Parameter(tensor.detach()))
            else:
                self.register_buffer(name, tensor)

    def forward(self, *inputs: Any) -> Any:
        return self.compute(self, *inputs)


def model_of(
    compute: Callable[..., Any],
    inputs: Callable[[SyntheticData, int], tuple[Any, ...]] = lambda data, size: (data.normal(size, 8),),
    more: Callable[[], dict[str, Tensor]] = dict,
    optimizer: Any = torch.optim.Adam,
) -> type[SupervisedModel]:
    class Kind(SupervisedModel):
        def build_network(self) -> nn.Module:
            return Variant(compute, **more())

        def build_batch(self) -> Batch:
            return Batch(inputs(self.data, self.batch_size))

        def compute_loss(self, outputs: Any, _: Any) -> Tensor:
            numbers = [stored_numbers(tensor) for tensor in tensors_in(outputs) if is_inexact(tensor)]
            return torch.stack([one.square().mean() for one in numbers]).sum()

        def build_optimizer(self) -> torch.optim.Optimizer:
            return optimizer(self.network.parameters(), lr=0.01)

    return Kind


def complex_normal(*shape: int) -> Tensor:
    return torch.randn(*shape, dtype=C64).requires_grad_()


def spectrum(x: Tensor) -> Tensor:
    return torch.fft.rfft(x)


COMPLEX = {
    "a filter of frequencies": model_of(
        lambda n, x: torch.fft.irfft(spectrum(n.linear(x)) * n.w, n=8), more=lambda: {"w": complex_normal(5)}
    ),
    "a complex layer": model_of(
        lambda n, x: (n.linear(x).to(n.w.dtype) @ n.w).abs(), more=lambda: {"w": complex_normal(8, 4)}
    ),
    "a rotation in a buffer": model_of(
        lambda n, x: torch.view_as_real(torch.view_as_complex(n.linear(x).view(-1, 4, 2)) * n.turns),
        more=lambda: {"turns": torch.polar(torch.ones(4), torch.arange(4.0))},
    ),
    "a complex input": model_of(
        lambda n, x: torch.view_as_real(x).flatten(1) @ n.linear.weight, lambda data, size: (complex_of(data, size, 4),)
    ),
    "a complex output": model_of(lambda n, x: spectrum(n.linear(x))),
    "a state that a step changes": model_of(
        lambda n, x: (
            torch.view_as_real(n.state.mul_(0.5).add_(spectrum(n.linear(x)).detach().mean(0))).sum() + n.linear(x)
        ),
        more=lambda: {"state": torch.ones(5, dtype=C64)},
    ),
    "a complex number in a list": model_of(lambda n, x: [n.linear(x), (spectrum(n.linear(x)),)]),
}


def complex_of(data: SyntheticData, *shape: int) -> Tensor:
    return torch.complex(data.normal(*shape), data.normal(*shape))


def ragged(data: SyntheticData, size: int) -> tuple[Tensor]:
    rows = [data.normal(2 + number % 3, 8) for number in range(size)]
    return (torch.nested.nested_tensor(rows, layout=torch.jagged),)


def padded(data: SyntheticData, size: int) -> tuple[Tensor]:
    return (torch.nested.nested_tensor([data.normal(2, 8) for _ in range(size)], layout=torch.strided),)


def with_holes(data: SyntheticData, size: int) -> tuple[Tensor]:
    values = data.normal(4 * size, 8)
    offsets, lengths = torch.arange(size + 1) * 4, torch.full((size,), 3)
    return (torch.nested.nested_tensor_from_jagged(values, offsets, lengths),)


NESTED = {
    "through a layer": model_of(lambda n, x: n.linear(x), ragged),
    "to dense rows": model_of(lambda n, x: n.linear(x).values(), ragged),
    "with a residual": model_of(lambda n, x: x + n.linear(x), ragged),
    "padded": model_of(lambda n, x: torch.nested.to_padded_tensor(n.linear(x), 0.0), ragged),
    "transposed": model_of(lambda n, x: n.linear(x).transpose(1, 2), ragged),
    "in the older layout": model_of(lambda n, x: n.linear(x), padded),
    "with holes": model_of(lambda n, x: n.linear(torch.cat(x.unbind())), with_holes),
}


def graph(layout: torch.layout) -> Callable[[SyntheticData, int], tuple[Tensor, Tensor]]:
    """A chain of 4 x `size` nodes: each has an edge to itself and to the next one."""

    def inputs(data: SyntheticData, size: int) -> tuple[Tensor, Tensor]:
        nodes = 4 * size
        edges = torch.block_diag(*[torch.tensor([[1.0, 0.5], [0.0, 1.0]])] * (nodes // 2))
        options = {"blocksize": (2, 2)} if "sparse_bs" in str(layout) else {}
        return edges.to_sparse(layout=layout, **options), data.normal(nodes, 8)

    return inputs


SPARSE = {
    "COO": model_of(lambda n, a, x: a @ n.linear(x), graph(torch.sparse_coo)),
    "CSR": model_of(lambda n, a, x: a @ n.linear(x), graph(torch.sparse_csr)),
    "CSC": model_of(lambda n, a, x: a @ n.linear(x), graph(torch.sparse_csc)),
    "BSR": model_of(lambda n, a, x: n.linear(x) + a.values().sum(), graph(torch.sparse_bsr)),
    "a COO output": model_of(lambda n, a, x: [a * 2, n.linear(x)], graph(torch.sparse_coo)),
    "whole numbers": model_of(lambda n, a, x: [(a * 2).to(torch.int64), n.linear(x)], graph(torch.sparse_coo)),
    "a gradient": model_of(
        lambda n, i: n.linear(F.embedding(i, n.table, sparse=True)),
        lambda data, size: (data.labels(size, 9),),
        more=lambda: {"table": torch.randn(9, 8).requires_grad_()},
        optimizer=torch.optim.SGD,
    ),
}


@dataclasses.dataclass
class Plain:
    logits: Tensor
    hidden: Any = None


@dataclasses.dataclass(frozen=True)
class Frozen:
    logits: Tensor
    count: int = 3


class Mapping(dict[str, Any]):
    """A dict of a library's own, which PyTorch takes for a leaf."""


Named = namedtuple("Named", "logits")  # noqa: PYI024  as libraries write them

CONTAINERS = {
    "a dataclass": model_of(lambda n, x: Plain(n.linear(x))),
    "a frozen dataclass": model_of(lambda n, x: Frozen(n.linear(x))),
    "a dataclass in a dataclass": model_of(lambda n, x: Plain(n.linear(x), Frozen(x))),
    "a namedtuple": model_of(lambda n, x: Named(n.linear(x))),
    "a UserDict": model_of(lambda n, x: UserDict(logits=n.linear(x))),
    "a dict of its own": model_of(lambda n, x: Mapping(logits=n.linear(x))),
    "a dataclass as input": model_of(
        lambda n, given: n.linear(given.logits), lambda data, size: (Plain(data.normal(size, 8)),)
    ),
}

KINDS = {"complex": COMPLEX, "nested": NESTED, "sparse": SPARSE, "container": CONTAINERS}
ALL = [
    pytest.param(model_class, id=f"{kind}: {name}")
    for kind, models in KINDS.items()
    for name, model_class in models.items()
]


@pytest.fixture(autouse=True)
def _quiet() -> Iterator[None]:
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message=".*(Sparse .* tensor support|nested tensors|NestedTensor).*")
        yield


@pytest.mark.parametrize("model_class", ALL)
@pytest.mark.parametrize("mode", [Mode.TRAIN, Mode.EVAL])
def test_the_contract_holds(model_class: type[Model], mode: Mode) -> None:
    model = model_class(mode, CPU, 2)
    assert contract.check_seed(model, contract.state(model)) == []
    assert contract.element_count(model_class(mode, CPU, 4).batch) >= 2 * contract.element_count(model.batch) - 9
    before = contract.copied(contract.trainable_parameters(model))
    outputs = contract.take_step(model)
    assert contract._check_outputs(model, outputs) == []
    if mode is Mode.TRAIN:
        changed = {
            name for name, value in contract.trainable_parameters(model).items() if not same(value, before[name])
        }
        assert changed >= {name for name, value in before.items() if value.is_complex()}
        assert changed


@pytest.mark.parametrize("model_class", ALL)
@pytest.mark.parametrize("precision", [Precision.FP32, Precision.FP64])
def test_a_precision_is_that_of_all_numbers(model_class: type[Model], precision: Precision) -> None:
    model = model_class(Mode.EVAL, CPU, 2)
    kinds = [(tensor.is_complex(), tensor.layout) for tensor in tensors_of(model)]
    apply_precision(model, precision)
    inspection = inspect_step(model, model.measured_step)
    check_precision(model, precision, NativeDtype.FP32, inspection)
    real = torch.float32 if precision is Precision.FP32 else torch.float64
    assert kinds == [(tensor.is_complex(), tensor.layout) for tensor in tensors_of(model)]
    assert {tensor.dtype for tensor in tensors_of(model) if is_inexact(tensor)} <= {real, real.to_complex()}
    assert inspection.result_is_finite
    work = count_work(model.measured_step)
    assert work.total or work.without_formula


def tensors_of(model: Model) -> list[Tensor]:
    network = model.networks()["network"]
    return [*network.parameters(), *network.buffers(), *tensors_in(model.batch)]


@pytest.mark.parametrize("model_class", ALL)
def test_results_are_compared(model_class: type[Model]) -> None:
    found = checked(model_class, Mode.EVAL)
    assert found.status is CheckStatus.CORRECT, found
    trained = checked(model_class, Mode.TRAIN)
    assert trained.status is CheckStatus.CORRECT, trained


def checked(model_class: type[Model], mode: Mode, backend: str = "eager", **changes: Any) -> Check:
    case = msgspec.structs.replace(CASE, mode=mode, backend=Backend(backend), batch_size=2, **changes)
    return check_case(case, SPEC, model_class, CPU)


# --- complex ---


def loses_the_imaginary_part(graph: torch.fx.GraphModule, _: Any) -> Callable[..., Any]:
    def run(*args: Any) -> Any:
        reals = [torch.complex(x.detach().real, 0 * x.detach().real) if x.is_complex() else x for x in args]
        return graph(*reals)

    return run


@pytest.fixture
def wrong_backend() -> Iterator[str]:
    name = "torchzoo_test_loses_the_imaginary_part"
    torch._dynamo.register_backend(loses_the_imaginary_part, name=name)
    yield name
    torch._dynamo.backends.registry._COMPILER_FNS.pop(name, None)
    torch._dynamo.reset()


@pytest.mark.parametrize("mode", [Mode.TRAIN, Mode.EVAL])
def test_a_lost_imaginary_part_is_incorrect(wrong_backend: str, mode: Mode) -> None:
    found = checked(COMPLEX["a filter of frequencies"], mode, wrong_backend)
    assert found.status is CheckStatus.INCORRECT, found


def test_a_cast_to_real_numbers_does_not_reach_the_label() -> None:
    model = COMPLEX["a filter of frequencies"](Mode.EVAL, CPU, 2)
    apply_precision(model, Precision.FP64)
    inspection = inspect_step(model, model.measured_step)
    model.network.w.data = model.network.w.data.to(C64)
    with pytest.raises(LabelNotReached, match=r"promises complex128, but network\.w is complex64"):
        check_precision(model, Precision.FP64, NativeDtype.FP32, inspection)


@pytest.mark.parametrize("name", ["a filter of frequencies", "a rotation in a buffer", "a complex input"])
@pytest.mark.parametrize("precision", [Precision.FP16, Precision.BF16])
def test_half_precision_is_a_skip_that_names_the_kind(name: str, precision: Precision) -> None:
    with pytest.raises(NotRunnable, match=r"is complex64, and PyTorch has no complex products in b?float16"):
        apply_precision(COMPLEX[name](Mode.EVAL, CPU, 2), precision)


def test_autocast_leaves_complex_numbers_alone() -> None:
    model = COMPLEX["a rotation in a buffer"](Mode.EVAL, CPU, 2)
    apply_precision(model, Precision.AMP_BF16)
    assert model.network.turns.dtype is C64


@pytest.mark.parametrize("part", [complex(float("nan"), 0), complex(0, float("inf"))])
def test_a_complex_number_is_finite_in_both_parts(part: complex) -> None:
    good = torch.ones(3, dtype=C64)
    assert is_finite([good, good.conj(), {"a": good[:0]}])
    bad = good.clone()
    bad[1] = part
    assert not is_finite((good, [bad]))


# --- sparse and nested ---


@pytest.mark.parametrize("name", ["CSR", "CSC"])
@pytest.mark.parametrize("precision", [Precision.FP16, Precision.BF16, Precision.AMP_BF16])
def test_compressed_matrices_have_no_half_precision_on_the_cpu(name: str, precision: Precision) -> None:
    with pytest.raises(NotRunnable, match=f"input 0 is sparse {name}, and on the CPU PyTorch has no products of such"):
        apply_precision(SPARSE[name](Mode.EVAL, CPU, 2), precision)


def test_sparse_products_count_stored_numbers() -> None:
    dense = torch.block_diag(torch.ones(2, 3), torch.ones(2, 3))  # 12 of 24 numbers
    x, vector = torch.ones(6, 5), torch.ones(6)
    for sparse in (dense.to_sparse(), dense.to_sparse_csr()):
        assert count_work(lambda a=sparse: a @ x).total == 2 * 12 * 5
        assert count_work(lambda a=sparse: a @ vector).total == 2 * 12
    both = count_work(lambda: dense.to_sparse() @ dense.t().to_sparse())
    assert (both.total, list(both.without_formula)) == (0, ["aten::mm"])


def test_bytes_and_values_are_those_that_are_stored() -> None:
    dense = torch.eye(4)
    indices = {torch.sparse_coo: 2 * 4 * 8, torch.sparse_csr: 5 * 8 + 4 * 8, torch.sparse_csc: 5 * 8 + 4 * 8}
    for layout, taken in indices.items():
        sparse = dense.to_sparse(layout=layout)
        assert stored_bytes(sparse) == 4 * 4 + taken
        assert same(sparse, sparse.clone())
        assert not same(sparse, (2 * dense).to_sparse(layout=layout))
        assert not same(sparse, dense)
        assert not is_finite((dense * torch.nan).to_sparse(layout=layout))
    jagged = torch.nested.nested_tensor([torch.ones(2), torch.ones(3)], layout=torch.jagged)
    assert not same(jagged, torch.nested.nested_tensor([torch.ones(3), torch.ones(2)], layout=torch.jagged))
    (hollow,) = with_holes(SyntheticData(CPU, 0), 2)
    assert stored_numbers(hollow).numel() == 2 * 3 * 8
    assert same(hollow, hollow.clone())


def test_another_nesting_is_not_correct() -> None:
    """The same numbers with other lengths are another result."""
    lengths: list[int] = [2, 3]

    def nest(n: Any, x: Tensor) -> Tensor:
        lengths.reverse()  # each run has the others
        return torch.nested.nested_tensor_from_jagged(n.linear(x), torch.tensor([0, lengths[0], 5]))

    found = checked(model_of(nest, lambda data, _: (data.normal(5, 8),)), Mode.EVAL)
    assert found.status in (CheckStatus.NONDETERMINISTIC, CheckStatus.REFERENCE_FAILED), found


# --- containers ---


def test_tensors_in_dataclasses_are_found_cast_and_left_in_their_place() -> None:
    def inputs(data: SyntheticData, size: int) -> tuple[Plain]:
        return (Plain(data.normal(size, 8), Frozen(data.normal(3))),)

    built = model_of(lambda n, x: n.linear(x.logits), inputs)(Mode.EVAL, CPU, 2)
    before = built.batch.inputs[0]
    apply_precision(built, Precision.FP64)
    after = built.batch.inputs[0]
    assert [tensor.dtype for tensor in tensors_in(after)] == [torch.float64] * 2
    assert [tensor.dtype for tensor in tensors_in(before)] == [torch.float32] * 2
    assert (type(after), type(after.hidden), after.hidden.count) == (Plain, Frozen, 3)
    given = Plain(torch.ones(2))
    given.hidden = given  # a cycle ends
    assert len(tensors_in([given])) >= 1
    assert tree_leaves(tensors_in(Mapping(a=[torch.ones(1)], b=3)))[0].shape == (1,)


def test_a_nan_in_a_dataclass_is_not_finite() -> None:
    assert not is_finite(Plain(torch.ones(1), [Frozen(torch.tensor([torch.nan]))]))
