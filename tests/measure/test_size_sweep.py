"""One compiled network meets one size after another. Dynamo is real, and its backend runs graphs as they are."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
import torch
import torch._dynamo
from torch import Tensor, nn
from torch._dynamo.utils import counters

from examples import CASE
from torchzoo.backends import NotRunnable
from torchzoo.case import Mode
from torchzoo.measure import latency, size_sweep
from torchzoo.measure.clock import DeviceClock
from torchzoo.measure.fresh_turns import Ask, Fresh, SizeResult, SizeSweep
from torchzoo.measure.size_sweep import Sized, batches_of, lengths_of, sweep, sweep_sizes
from torchzoo.model import Inputs, Model
from torchzoo.model.tasks import Batch, LanguageModel
from torchzoo.settings import Settings, Stage
from torchzoo.zoo.spec import read_spec
from user_models import make_folder

QUICK = Settings(time_limit_s=0.05, min_time_s=0.0, min_samples=1, block_s=1e-3)


class Layers(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(6, 5), nn.ReLU(), nn.Linear(5, 3))

    def forward(self, x: Tensor) -> Tensor:  # (B, 6) to (B, 3)
        y: Tensor = self.layers(x)
        return y


class Broken(Layers):
    def forward(self, x: Tensor) -> Tensor:
        y = self.layers(x)
        torch._dynamo.graph_break()
        return y * 2


class FourAreSpecial(Layers):
    def forward(self, x: Tensor) -> Tensor:
        y: Tensor = self.layers(x)
        return y + 1 if x.shape[0] == 4 else y


class NotTwo(Layers):
    def forward(self, x: Tensor) -> Tensor:
        if x.shape[0] == 2:
            raise ValueError("two are too few")
        return super().forward(x)


class OnRows(Model):
    """A network on rows (B, 6)."""

    network_class: type[nn.Module] = Layers

    def build(self) -> None:
        self.network = self.network_class()
        self.batch = (torch.randn(self.batch_size, 6),)

    def networks(self) -> dict[str, nn.Module]:
        return {"network": self.network}

    @property
    def example_inputs(self) -> Inputs:
        inputs: Inputs = self.batch
        return inputs

    @torch.no_grad()
    def eval_step(self) -> Any:
        return self.network(*self.batch)


class SameRows(OnRows):
    """Its network always gets three rows."""

    @torch.no_grad()
    def eval_step(self) -> Any:
        return self.network(self.batch[0].new_ones(3, 6))


@pytest.fixture(autouse=True)
def dynamo_knows_nothing(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(latency.gc, "collect", lambda *_: 0)  # it takes most of a test's time, and is not under test
    torch._dynamo.reset()
    yield
    torch._dynamo.reset()


def model_of(network: type[nn.Module], model: type[OnRows] = OnRows) -> Callable[[int], Model]:
    made = type("Made", (model,), {"network_class": network})
    return lambda batch_size: made(Mode.EVAL, "cpu", batch_size)


def sized_of(build: Callable[[int], Model], *sizes: int) -> Sized:
    return Sized(build(4), {size: build(size).batch for size in sizes}, is_batch_size=True)


def swept(sized: Sized, policy: str) -> dict[int, SizeResult]:
    clock = DeviceClock(torch.device("cpu"))
    found = sweep_sizes(sized, policy, clock, QUICK, lambda _: None, backend="eager")
    assert found.marked_dims == (1 if policy.startswith("mark") else 0)
    return {one.size: one for one in found.sizes}


@pytest.mark.parametrize(
    ("policy", "graphs"),
    [
        ("static", {4: 1, 8: 1, 5: 1}),
        ("automatic", {4: 1, 8: 1, 5: 0, 1: 1}),
        ("mark_dynamic", {4: 1, 8: 0, 1: 1}),
        ("mark_unbacked", {4: 1, 8: 0, 1: 0}),
    ],
)
def test_what_each_policy_compiles(policy: str, graphs: dict[int, int]) -> None:
    found = swept(sized_of(model_of(Layers), *graphs), policy)
    assert {size: one.graphs for size, one in found.items()} == graphs
    assert not any(one.problem for one in found.values())
    recompiled = [size for size, one in found.items() if one.recompilations]
    assert recompiled == [size for size in graphs if graphs[size] and size != 4]
    for one in found.values():
        assert [block.variant for block in one.blocks[:4]] == ["eager", "candidate", "candidate", "eager"]


def test_a_network_in_parts_shares_no_code_with_those_that_are_compiled_for_one_size() -> None:
    """After a break, Dynamo compiles the network's own function, which all ways to compile it have in common."""
    found = swept(sized_of(model_of(Broken), 4, 8), "mark_dynamic")
    assert all(one.blocks and not one.problem for one in found.values())
    assert found[4].graphs == 2


def test_a_size_that_is_a_constant_after_all_is_a_problem_with_its_reason() -> None:
    found = swept(sized_of(model_of(FourAreSpecial), 4, 8), "mark_dynamic")
    assert "ConstraintViolation" in found[4].problem or "Constraints violated" in found[4].problem
    assert found[4].blocks == ()
    assert not found[8].problem  # the next size is tried all the same


def test_a_size_that_fails_in_eager_says_so() -> None:
    found = swept(sized_of(model_of(NotTwo), 4, 2, 5), "automatic")
    assert found[2].problem == "in eager too: ValueError: two are too few"
    assert (found[2].graphs, found[2].blocks) == (0, ())
    assert found[5].blocks


def test_batches_are_built_for_each_size_and_one_that_can_not_be_is_a_problem() -> None:
    build = model_of(Layers)

    def build_few(batch_size: int) -> Model:
        if batch_size > 5:
            raise MemoryError("too many")
        return build(batch_size)

    sized = batches_of(build(4), build_few)
    assert {size: batch[0].shape[0] for size, batch in sized.batches.items()} == {4: 4, 5: 5, 2: 2, 1: 1}
    assert sized.problems == {8: "MemoryError: too many"}
    one = batches_of(build(1), build_few)
    assert list(one.batches) == [1, 2]
    sized = Sized(sized.model, {4: sized.batches[4], 5: sized.batches[5]}, is_batch_size=True, problems=sized.problems)
    found = swept(sized, "static")
    assert [(size, bool(one.problem)) for size, one in found.items()] == [(4, False), (5, False), (8, True)]
    assert sized.model.batch_size == 5


def test_inputs_that_never_change_have_no_sizes_to_sweep() -> None:
    with pytest.raises(NotRunnable, match="do not change with this size"):
        swept(sized_of(model_of(Layers, SameRows), 4, 8), "automatic")


def test_what_is_compiled_when_a_size_is_met_once_more_is_counted_at_that_size() -> None:
    class Changes(Layers):
        offset = 0

        def forward(self, x: Tensor) -> Tensor:
            return super().forward(x) + Changes.offset

    def tell(stage: Stage) -> None:
        Changes.offset += stage is Stage.MEASURE  # a guard fails when the sizes are timed

    clock = DeviceClock(torch.device("cpu"))
    found = sweep_sizes(sized_of(model_of(Changes), 4, 8), "static", clock, QUICK, tell, backend="eager")
    assert [(one.graphs, len(one.recompilations), one.problem) for one in found.sizes] == [(2, 1, ""), (2, 2, "")]
    assert all(one.blocks for one in found.sizes)


def test_both_networks_are_profiled_at_each_size_once_all_are_timed(monkeypatch: pytest.MonkeyPatch) -> None:
    done: list[str] = []

    def noted(name: str, function: Callable[..., Any]) -> Callable[..., Any]:
        def call(*args: Any, **kwargs: Any) -> Any:
            done.append(name)
            return function(*args, **kwargs)

        return call

    monkeypatch.setattr(size_sweep, "measure_latency", noted("timed", size_sweep.measure_latency))
    monkeypatch.setattr(size_sweep, "measure_breakdown", noted("profiled", size_sweep.measure_breakdown))
    found = swept(sized_of(model_of(NotTwo), 4, 8, 2), "automatic")
    assert done == ["timed"] * 2 + ["profiled"] * 4
    assert found[2].breakdowns == {}  # it was not timed
    for size in (4, 8):
        for breakdown in found[size].breakdowns.values():
            calls = {kernel.name: kernel.calls for kernel in breakdown.kernels}
            assert calls["aten::addmm"] == 2 * len(breakdown.steps)  # two linear layers
        assert set(found[size].breakdowns) == {block.variant for block in found[size].blocks}


def test_each_network_is_profiled_with_its_own_code(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[Any] = []
    model = OnRows(Mode.EVAL, "cpu", 4)

    def refuse(*_: Any, **__: Any) -> Any:
        seen.append(model.network._compiled_call_impl)
        raise RuntimeError("no profiler")

    monkeypatch.setattr(size_sweep, "measure_breakdown", refuse)
    found = swept(Sized(model, {4: model.batch, 8: model_of(Layers)(8).batch}, is_batch_size=True), "automatic")
    alone, candidate = seen[::2], seen[1::2]
    assert len({*alone, *candidate}) == 3  # one for each size alone, and the one for all
    assert len(set(candidate)) == 1
    for one in found.values():
        assert one.blocks
        assert not one.problem
        assert {each.problem for each in one.breakdowns.values()} == {"RuntimeError: no profiler"}


@pytest.mark.slow
def test_what_is_compiled_for_one_size_alone_is_found_by_the_next_policy(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The code that is judged is compiled anew all the same: inductor's caches are as empty as they were."""
    found = {}
    for policy in ("static", "mark_dynamic"):
        monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", str(tmp_path / policy))
        torch._dynamo.reset()
        counters["inductor"].clear()
        model = OnRows(Mode.EVAL, torch.device("cpu"), 4)
        sized = batches_of(model, lambda size: OnRows(Mode.EVAL, torch.device("cpu"), size))
        clock = DeviceClock(torch.device("cpu"))
        result = sweep_sizes(sized, policy, clock, QUICK, lambda _: None, shared=tmp_path / "alone")
        assert not any(one.problem for one in result.sizes)
        found[policy] = [counters["inductor"][f"fxgraph_cache_{what}"] for what in ("miss", "hit")]
        assert os.environ["TORCHINDUCTOR_CACHE_DIR"] == str(tmp_path / policy)
    sizes, graphs = len(sized.batches), sum(one.graphs for one in result.sizes)
    assert found == {"static": [2 * sizes, 0], "mark_dynamic": [graphs, sizes]}
    assert graphs < sizes


def test_a_process_uses_the_device_that_it_was_given(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    make_folder(tmp_path, "tiny")
    case = msgspec.structs.replace(CASE, model="tiny", device="cuda", batch_size=2)
    ask = Ask(
        function="",
        case=case,
        spec=read_spec(tmp_path / "tiny"),
        settings=QUICK,
        options={"axis": "batch", "policy": "static"},
        folder="",
        caches="",
        scratch="",
        log="",
        device="cuda",
    )
    used: list[str] = []

    def use_device(name: str, _: int | None) -> torch.device:
        used.append(name)
        return torch.device("cpu")

    monkeypatch.setattr(size_sweep, "use_device", use_device)
    monkeypatch.setattr(size_sweep, "sweep_sizes", lambda *_, **__: SizeSweep(sizes=()))
    for device in ("cuda", "cuda:1"):
        sweep(Fresh(ask=msgspec.structs.replace(ask, device=device), began_ns=0, tell=lambda _: None))
    assert used == ["cuda", "cuda:1"]


class Embedded(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(7, 3)

    def forward(self, input_ids: Tensor, mask: Tensor) -> Tensor:  # (B, T), (B,) to (B, T, 3)
        y: Tensor = self.embedding(input_ids) * mask[:, None, None]
        return y


class Tokens(LanguageModel):
    eval_length = 12

    def build_network(self) -> nn.Module:
        return Embedded()

    def build_batch(self) -> Batch:
        shape = (self.batch_size, self.eval_length)
        return Batch({"input_ids": torch.ones(shape, dtype=torch.long), "mask": torch.ones(self.batch_size)})

    @torch.no_grad()
    def eval_step(self) -> Tensor:
        y: Tensor = self.forward()
        return y


def test_lengths_are_cut_from_sequences_only() -> None:
    model = Tokens(Mode.EVAL, "cpu", 12)
    sized = lengths_of(model)
    assert list(sized.batches) == [12, 6, 9, 5]
    assert sized.batches[6].inputs["input_ids"].shape == (12, 6)
    assert sized.batches[6].inputs["mask"].shape == (12,)
    found = swept(sized, "mark_dynamic")
    assert [one.graphs for one in found.values()] == [1, 0, 0, 0]
    assert model.batch_size == 12
    one_row = lengths_of(Tokens(Mode.EVAL, "cpu", 1)).batches[6].inputs["input_ids"]
    assert one_row.stride() == (6, 1)
    with pytest.raises(NotRunnable, match="not known what a length is"):
        lengths_of(model_of(Layers)(4))
