"""How much of a compiled step ran in eager: operators outside of all compiled graphs, by what the label compiles."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any

import pytest
import torch
import torch._dynamo
from torch import Tensor, distributed, nn
from torch.nn import functional as F
from torch.nn.parallel import DistributedDataParallel

from torchzoo.measure.passes.coverage import measure_coverage
from torchzoo.measure.variant import Variant
from torchzoo.record import Coverage


def coverage(
    network: nn.Module,
    *,
    inputs: Callable[[int], tuple[Any, ...]] = lambda _: (torch.ones(2, 4),),
    modules: Sequence[nn.Module] | None = None,
    after: Callable[[Tensor], Any] = lambda _: None,
    whole_step: bool = False,
    steps: int = 6,
    limit: int = 2,
) -> Coverage:
    """That of a network after so many steps, with Dynamo's limit of recompilations so low."""
    modules = [network] if modules is None else modules
    given = [inputs(step) for step in range(steps + 4)]  # the two variants take two steps each under marks

    def step() -> None:
        after(network(*given[0]))
        if len(given) > 1 and not whole_step:
            given.pop(0)

    compiled_step = torch.compile(step, backend="aot_eager") if whole_step else step
    compiled = {} if whole_step else {one: torch.compile(one._call_impl, backend="aot_eager") for one in modules}

    def select(name: str) -> None:
        for module in modules:
            vars(module).pop("_compiled_call_impl", None)
            if name == "candidate" and module in compiled:
                vars(module)["_compiled_call_impl"] = partial(compiled[module])

    eager = Variant(name="eager", step=step, select=partial(select, "eager"))
    candidate = Variant(name="candidate", step=compiled_step, select=partial(select, "candidate"))
    with torch._dynamo.config.patch(recompile_limit=limit):
        candidate.select()
        for _ in range(steps):
            candidate.step()
        before = [dict(vars(module)) for module in modules]
        found = measure_coverage(eager, candidate, list(compiled))
        candidate.select()
        assert [list(vars(module)) for module in modules] == [list(one) for one in before]
    assert found is not None
    return found


class Broken(nn.Module):
    """Four operators in graphs (linear, relu, linear, sigmoid), and four that Dynamo must leave (2 x, cos, sin, +)."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(4, 4), nn.Linear(4, 4)

    def forward(self, x: Tensor) -> Tensor:
        x = self.first(x).relu()
        return self.second(_left(x)).sigmoid()


@torch.compiler.disable  # type: ignore[untyped-decorator]
def _left(x: Tensor) -> Tensor:
    return (2 * x).cos() + x.sin()


def test_operators_between_graphs_count_as_eager() -> None:
    assert coverage(Broken()) == Coverage(operators=8, in_eager=4)


def test_the_backward_pass_and_the_loss_do_not_count() -> None:
    assert coverage(Broken(), after=lambda outputs: outputs.square().sum().backward()).operators == 8


def test_a_network_without_a_break_has_none() -> None:
    network = nn.Sequential(nn.Linear(4, 4), nn.ReLU(), nn.Linear(4, 4))
    assert coverage(_Wrapped(network)) == Coverage(operators=3, in_eager=0)


def test_with_blocks_as_scope_only_operators_in_them_count() -> None:
    network = _Wrapped(nn.Sequential(Broken(), nn.ReLU(), Broken()))
    assert coverage(network, modules=list(network.inner[::2])) == Coverage(operators=16, in_eager=8)


def test_with_the_step_as_scope_what_comes_after_the_network_counts() -> None:
    network = Broken()
    found = coverage(network, after=lambda outputs: _left(outputs).sum(), whole_step=True)
    assert found == Coverage(operators=13, in_eager=8)


def test_marks_leave_graphs_as_they_were() -> None:
    network = Broken()
    coverage(network)
    compiled = torch.compile(network._call_impl, backend="aot_eager")
    before = torch._dynamo.utils.counters["stats"]["unique_graphs"]
    compiled(torch.ones(2, 4))
    assert torch._dynamo.utils.counters["stats"]["unique_graphs"] == before


class _Wrapped(nn.Module):
    """A forward of a class that is not PyTorch's, whose functions Dynamo does not compile by themselves."""

    def __init__(self, inner: nn.Module) -> None:
        super().__init__()
        self.inner = inner
        self.state: Any = 0

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.inner(x)
        return out


# --- functions that Dynamo refuses at its limit ---


class _Counter(_Wrapped):
    def forward(self, x: Tensor) -> Tensor:
        self.state += 1
        return F.relu(x) * self.state


class _Layer(nn.Module):
    """One code for all layers, and a number that differs in each."""

    def __init__(self, number: int) -> None:
        super().__init__()
        self.number = number

    def forward(self, x: Tensor) -> Tensor:
        x = F.relu(x) * self.number
        torch._dynamo.graph_break()
        return x.cos()


class _Layers(_Wrapped):
    def __init__(self) -> None:
        super().__init__(nn.Identity())
        self.layers = nn.ModuleList(map(_Layer, range(6)))

    def forward(self, x: Tensor) -> Tensor:
        for layer in self.layers:
            x = layer(x)
            torch._dynamo.graph_break()
        return x


def _lengths(step: int) -> tuple[Tensor]:
    return (torch.ones(2, 4, 1 + step),)


def _dims(step: int) -> tuple[Tensor]:
    return (torch.ones([1] * step + [4]),)


def _dtypes(step: int) -> tuple[Tensor]:
    return (torch.ones(4).to((torch.float32, torch.float64, torch.float16, torch.bfloat16)[min(step, 3)]),)


class _Relu(_Wrapped):
    def forward(self, x: Tensor) -> Tensor:
        return F.relu(x).cos()


class _ReluByLength(_Wrapped):
    def forward(self, x: Tensor) -> Tensor:
        return F.relu(x).cos() * len(x.shape) if x.shape[-1] % 7 else x.sin()


@pytest.mark.parametrize(
    ("network", "inputs"),
    [
        (_Counter, None),
        (_Layers, None),
        (_Relu, _dims),
        (_Relu, _dtypes),
    ],
)
def test_a_network_at_the_limit_runs_in_eager(network: Callable[..., nn.Module], inputs: Any) -> None:
    made = network() if network is _Layers else network(nn.Identity())
    found = coverage(made, **({} if inputs is None else {"inputs": inputs}), limit=2)
    assert found.eager_share > 0.4, found


@pytest.mark.parametrize(("network", "inputs"), [(_Relu, _lengths), (_ReluByLength, lambda _: (torch.ones(2, 5),))])
def test_a_network_that_keeps_to_its_graphs_runs_in_them(network: Callable[..., nn.Module], inputs: Any) -> None:
    assert coverage(network(nn.Identity()), inputs=inputs).in_eager == 0


@pytest.fixture
def group() -> Iterator[distributed.ProcessGroup]:
    """Of this process alone."""
    distributed.init_process_group("gloo", rank=0, world_size=1, store=distributed.HashStore())
    yield distributed.group.WORLD
    distributed.destroy_process_group()


class Normalized(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer, self.norm = nn.Linear(4, 4), nn.BatchNorm1d(4)

    def forward(self, x: Tensor) -> Tensor:
        normalized: Tensor = self.norm(self.layer(x))
        return normalized


def test_the_broadcast_of_buffers_between_ranks_is_no_operator_left_to_eager(group: distributed.ProcessGroup) -> None:
    network = DistributedDataParallel(Normalized(), process_group=group)
    found = coverage(network, inputs=lambda _: (torch.randn(8, 4),), after=lambda out: out.sum().backward(), limit=8)
    assert found == Coverage(operators=3, in_eager=0)  # the layer, the norm, and its count of batches
