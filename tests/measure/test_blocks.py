"""`--compile-scope block`: repeated blocks are compiled one by one, share their code, and leave eager as it is."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from torchzoo.backends import NotRunnable
from torchzoo.case import Backend, Case, CompileScope, Mode, Parallel
from torchzoo.measure.blocks import blocks
from torchzoo.measure.compilation import CompilationWatch, count_compiled, watch_compilation
from torchzoo.measure.precision import inspect_step
from torchzoo.measure.variant import Variant, candidate_variant, eager_variant
from torchzoo.model import Model
from torchzoo.record import Compilation
from torchzoo.zoo.catalog import find_models, load_model_class
from user_models import TINY, make_folder

BLOCKY = '''"""A residual network (torchzoo's tests, 2026)."""

from torch import nn
from torchzoo.model.tasks import Batch, SupervisedModel


class Block(nn.Module):
    def __init__(self, number):
        super().__init__()
        self.linear = nn.Linear(4, 4)
        self.number = NUMBER

    def forward(self, x):
        return x + self.number + self.linear(x).tanh()


class Network(nn.Module):
    def __init__(self):
        super().__init__()
        self.first = nn.Linear(4, 4)
        self.layers = nn.ModuleList([Block(number) for number in range(10)])
        self.last = nn.Linear(4, 2)

    def forward(self, x):
        x = self.first(x)
        for layer in self.layers:
            x = layer(x)
        return self.last(x)


class Model(SupervisedModel):
    def build_network(self):
        return Network()

    def build_batch(self):
        return Batch((self.data.normal(self.batch_size, 4),), self.data.labels(self.batch_size, 2))

    def compute_loss(self, outputs, targets):
        return nn.functional.cross_entropy(outputs, targets)
'''
ALIKE = BLOCKY.replace("NUMBER", "0")
ALL_DIFFERENT = BLOCKY.replace("NUMBER", "number")  # an integer of a module is a constant to Dynamo
SEQUENCES = ALIKE.replace("Block(number) for", "nn.Sequential(nn.Linear(4, 4), nn.Tanh()) for")


def built(tmp_path: Path, code: str, mode: Mode = Mode.TRAIN) -> Model:
    make_folder(tmp_path, "blocky", code)
    return load_model_class(find_models([tmp_path]).spec("blocky"))(mode, "cpu", 4)


def case(mode: Mode, **changes: Any) -> Case:
    backend = Backend("aot_eager")
    return Case(
        **{"model": "blocky", "mode": mode, "device": "cpu", "backend": backend, "batch_size": 4, **changes},
        compile_scope=CompileScope.BLOCK,
    )


def variants(model: Model, **changes: Any) -> tuple[Variant, Variant, CompilationWatch]:
    calls = inspect_step(model, model.measured_step).take_calls()
    watch = watch_compilation()
    step: Callable[[], Any] = model.measured_step
    return eager_variant(model, step), candidate_variant(model, step, case(model.mode, **changes), calls), watch


def counted(model: Model, **changes: Any) -> Compilation | None:
    _, candidate, watch = variants(model, **changes)
    candidate.select()
    for _ in range(2):
        candidate.step()
    return count_compiled(watch, case(model.mode, **changes), None)


@pytest.mark.parametrize("mode", [Mode.TRAIN, Mode.EVAL])
def test_blocks_run_compiled_for_the_candidate_only_and_agree_with_eager(tmp_path: Path, mode: Mode) -> None:
    model = built(tmp_path, ALIKE, mode)
    eager, candidate, watch = variants(model)
    initial = {name: value.clone() for name, value in model.network.state_dict().items()}
    results = []
    for variant in (eager, candidate, eager):
        model.network.load_state_dict(initial)
        model.optimizer = model.build_optimizer()
        variant.select()
        before = watch.graphs()
        result = variant.step()
        assert (watch.graphs() > before) == (variant is candidate)
        results.append((result, [parameter.detach().clone() for parameter in model.network.parameters()]))
        compiled = [layer._compiled_call_impl is not None for layer in model.network.layers]
        assert compiled == [variant is candidate] * 10
        assert model.network._compiled_call_impl is None
    torch.testing.assert_close(results[0], results[1])
    torch.testing.assert_close(results[0], results[2])


@pytest.mark.parametrize("code", [ALIKE, SEQUENCES], ids=["own class", "sequences"])
def test_all_blocks_of_a_class_run_the_code_of_one(tmp_path: Path, code: str) -> None:
    counts = counted(built(tmp_path, code))
    assert counts is not None
    assert (counts.graphs, counts.recompilations, counts.breaks) == (1, (), ())


def test_blocks_that_dynamo_refuses_to_compile_are_counted(tmp_path: Path) -> None:
    with torch._dynamo.config.patch(recompile_limit=3):
        counts = counted(built(tmp_path, ALL_DIFFERENT))
    assert counts is not None
    (refused,) = counts.refused
    assert "number" in refused.reason
    assert (counts.graphs, counts.functions_left) == (3, 1)


def test_a_network_without_repeated_blocks_is_a_reasoned_skip(tmp_path: Path) -> None:
    with pytest.raises(NotRunnable, match="no repeated blocks"):
        variants(built(tmp_path, TINY))


def test_what_dynamo_would_leave_to_python_under_fsdp2_is_a_reasoned_skip(tmp_path: Path) -> None:
    sharded = {"world": 2, "parallel": Parallel.FSDP2}
    with pytest.raises(NotRunnable, match="under FSDP2"):
        variants(built(tmp_path / "sequences", SEQUENCES), **sharded)
    variants(built(tmp_path / "alike", ALIKE), **sharded)


def test_blocks_have_children_are_of_one_class_and_stand_in_no_other_block() -> None:
    def block(depth: int = 1) -> nn.Module:
        return nn.TransformerEncoderLayer(4, 2) if depth == 1 else nn.Sequential(block(), block())

    nested = nn.ModuleList([block(2), block(2)])
    network = nn.ModuleDict(
        {
            "plain": nn.Sequential(nn.Linear(2, 2), nn.Linear(2, 2)),  # no children
            "one": nn.ModuleList([block()]),
            "mixed": nn.ModuleList([block(), nn.Sequential(nn.ReLU())]),
            "deep": nn.ModuleDict({"nested": nested}),
        }
    )
    assert blocks(network) == list(nested)
