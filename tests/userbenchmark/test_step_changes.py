"""Changes of a model's own step: they do the same work in another way, and leave the step itself as it was."""

from __future__ import annotations

import contextlib
import re
import sys
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

from examples import ROOT
from torchzoo import backends, cli
from torchzoo.backends import NotRunnable
from torchzoo.case import Backend, Case, Mode
from torchzoo.errors import TorchzooError
from torchzoo.measure.measure_case import Assignment, measure_case
from torchzoo.record import Measured
from torchzoo.run.plan import parse_backend
from torchzoo.settings import Settings
from torchzoo.zoo.catalog import find_models
from user_models import TINY, make_folder, tiny_model

changed_step = backends.module_of("paper_optimizations/optimizer").changed_step


class Operators(TorchDispatchMode):
    """Counts operators by name."""

    def __init__(self) -> None:
        super().__init__()
        self.counts: dict[str, int] = {}

    def __torch_dispatch__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        name = function.overloadpacket.__name__
        self.counts[name] = self.counts.get(name, 0) + 1
        return function(*args, **(kwargs or {}))


def operators(step: Callable[[], Any]) -> dict[str, int]:
    """The operators of the second step, which has gradients to reset."""
    step()
    with Operators() as seen:
        step()
    return seen.counts


@pytest.mark.parametrize(
    ("backend", "expected", "absent"),
    [
        (Backend("zero_grad", "kernels"), {"zero_": 4}, "_foreach_zero_"),
        (Backend("zero_grad", "foreach"), {"_foreach_zero_": 1}, "zero_"),
        (Backend("zero_grad", "none"), {}, "zero_"),
        (Backend("optimizer", "for-loop"), {"addcdiv_": 4}, "_foreach_addcdiv_"),
        (Backend("optimizer", "foreach"), {"_foreach_addcdiv_": 1}, "addcdiv_"),
        (Backend("optimizer", "fused"), {"_fused_adam_": 1}, "addcdiv_"),
    ],
    ids=str,
)
def test_a_changed_step_calls_what_it_says(
    tmp_path: Path, backend: Backend, expected: dict[str, int], absent: str
) -> None:
    model = tiny_model(tmp_path)
    counts = operators(changed_step(model, model.train_step, backend))
    assert {name: counts.get(name) for name in expected} == expected
    assert absent not in counts


@pytest.mark.parametrize("option", ["for-loop", "foreach", "fused"])
def test_the_models_own_step_stays_as_it_was(tmp_path: Path, option: str) -> None:
    model = tiny_model(tmp_path)
    before = operators(model.train_step)
    own_state = model.optimizer.state
    changed_step(model, model.train_step, Backend("optimizer", option))()
    assert model.optimizer.state is own_state
    assert {int(state["step"]) for state in own_state.values()} == {2}
    assert operators(model.train_step) == before


@pytest.mark.parametrize(
    "backend",
    [Backend("zero_grad", "kernels"), Backend("zero_grad", "foreach"), Backend("optimizer", "fused")],
    ids=str,
)
def test_a_changed_step_updates_the_parameters_as_the_own_step_does(tmp_path: Path, backend: Backend) -> None:
    own = tiny_model(tmp_path)
    other = type(own)(Mode.TRAIN, "cpu", 4)
    changed = changed_step(other, other.train_step, backend)
    for _ in range(3):
        torch.testing.assert_close(changed(), own.train_step())
    torch.testing.assert_close(dict(other.network.named_parameters()), dict(own.network.named_parameters()))


def test_an_own_step_that_raises_is_put_back(tmp_path: Path) -> None:
    model = tiny_model(tmp_path)

    def raises() -> None:
        raise ValueError("no")

    with pytest.raises(ValueError, match="no"):
        changed_step(model, raises, Backend("zero_grad", "kernels"))()
    assert "zero_grad" not in vars(model.optimizer)


def test_what_has_nothing_to_change_is_a_reasoned_skip(tmp_path: Path) -> None:
    code = TINY + "\n    def build_optimizer(self):\n        return torch.optim.RMSprop(self.network.parameters())\n"
    model = tiny_model(tmp_path, code)
    with pytest.raises(NotRunnable, match="RMSprop has no fused implementation"):
        changed_step(model, model.train_step, Backend("optimizer", "fused"))
    changed_step(model, model.train_step, Backend("optimizer", "foreach"))()
    with pytest.raises(NotRunnable, match="does not reset gradients by its optimizers"):
        changed_step(model, lambda: None, Backend("zero_grad", "none"))()
    model.optimizer = None
    with pytest.raises(NotRunnable, match="holds no optimizer"):
        changed_step(model, model.train_step, Backend("zero_grad", "none"))


SPARSE = """

    def build_network(self):
        bag = torch.nn.EmbeddingBag(9, 3, sparse=True)
        return torch.nn.Sequential(bag, torch.nn.Linear(3, 1))

    def build_batch(self):
        return Batch((torch.zeros(self.batch_size, 2, dtype=torch.long),))

    def compute_loss(self, outputs, targets):
        return outputs.mean()

    def build_optimizer(self):
        return torch.optim.SGD(self.network.parameters(), lr=0.1)
"""


@pytest.mark.parametrize("option", ["foreach", "fused"])
def test_sparse_gradients_are_a_reasoned_skip_where_the_label_would_not_hold(tmp_path: Path, option: str) -> None:
    model = tiny_model(tmp_path, TINY + SPARSE)
    with pytest.raises(NotRunnable, match=f"SGD has no {option} implementation for sparse gradients"):
        changed_step(model, model.train_step, Backend("optimizer", option))()
    assert "step" not in vars(model.optimizer)
    before = [parameter.detach().clone() for parameter in model.network.parameters()]
    changed_step(model, model.train_step, Backend("optimizer", "for-loop"))()
    assert not torch.equal(before[0], model.network[0].weight)


@pytest.mark.parametrize("option", ["for-loop", "foreach"])
def test_a_learning_rate_that_is_a_tensor_is_for_fused_optimizers_only(tmp_path: Path, option: str) -> None:
    adam = "torch.optim.Adam(self.network.parameters(), lr=torch.tensor(0.1), fused=True)"
    model = tiny_model(tmp_path, TINY + f"\n    def build_optimizer(self):\n        return {adam}\n")
    with pytest.raises(NotRunnable, match="the learning rate of its Adam is a tensor"):
        changed_step(model, model.train_step, Backend("optimizer", option))
    assert operators(changed_step(model, model.train_step, Backend("optimizer", "fused")))["_fused_adam_"] == 1


@pytest.mark.parametrize(("own", "option"), [("fused", "for-loop"), ("foreach", "fused")])
def test_only_a_fused_optimizer_takes_the_scaling_of_gradients_itself(tmp_path: Path, own: str, option: str) -> None:
    sgd = f"torch.optim.SGD(self.network.parameters(), lr=0.1, {own}=True)"
    model = tiny_model(tmp_path, TINY + f"\n    def build_optimizer(self):\n        return {sgd}\n")
    model.scaler = torch.amp.GradScaler("cpu")
    model.train_step()
    takes = []
    model.optimizer.step = lambda **_: takes.append(getattr(model.optimizer, "_step_supports_amp_scaling", False))
    changed_step(model, model.train_step, Backend("optimizer", option))()
    assert takes == [option == "fused"]


def test_a_scheduler_that_counts_updates_counts_those_of_a_changed_optimizer(tmp_path: Path) -> None:
    model = tiny_model(tmp_path)
    torch.optim.lr_scheduler.StepLR(model.optimizer, 1)  # puts a `step` of its own into the optimizer
    own = model.optimizer.step
    changed = changed_step(model, model.train_step, Backend("optimizer", "fused"))
    changed()
    assert operators(changed)["_fused_adam_"] == 1
    assert model.optimizer.step is own


def test_a_square_root_that_divides_nothing_is_a_reasoned_skip(monkeypatch: pytest.MonkeyPatch) -> None:
    modeling_reformer = SimpleNamespace(np=np)
    monkeypatch.setitem(sys.modules, "transformers.models.reformer.modeling_reformer", modeling_reformer)
    for step in (lambda: None, lambda: modeling_reformer.np.sqrt(64)):
        with pytest.raises(NotRunnable, match="no longer divides by a square root"):
            changed_step(object(), step, Backend("rsqrt"))()  # type: ignore[arg-type]
        assert modeling_reformer.np is np


def test_the_librarys_reformer_has_a_square_root_on_the_device_in_each_layer_and_gives_the_same() -> None:
    transformers = pytest.importorskip("transformers")
    config = transformers.ReformerConfig(
        vocab_size=9,
        hidden_size=8,
        attn_layers=["local", "lsh"],
        num_attention_heads=2,
        attention_head_size=4,
        feed_forward_size=8,
        local_attn_chunk_length=4,
        lsh_attn_chunk_length=4,
        num_buckets=2,
        hash_seed=0,
        axial_pos_shape=[4, 4],
        axial_pos_embds_dim=[4, 4],
        max_position_embeddings=16,
        pad_token_id=None,
        use_cache=False,
    )
    network, tokens = transformers.ReformerModel(config).eval(), torch.arange(16).remainder(9).unsqueeze(0)

    @torch.no_grad()
    def own() -> torch.Tensor:
        hidden: torch.Tensor = network(tokens).last_hidden_state
        return hidden

    changed = changed_step(object(), own, Backend("rsqrt"))  # type: ignore[arg-type]
    before, after = operators(own), operators(changed)
    assert after["rsqrt"] - before["rsqrt"] == before["div"] - after.get("div", 0) == 2
    torch.testing.assert_close(changed(), own())


def test_offloaded_networks_are_back_on_the_device_and_give_the_same(tmp_path: Path) -> None:
    model = tiny_model(tmp_path, mode=Mode.EVAL)
    torch.testing.assert_close(changed_step(model, model.eval_step, Backend("offload"))(), model.eval_step())
    assert {parameter.device for parameter in model.network.parameters()} == {model.device}


def measured(tmp_path: Path, backend: Backend, mode: Mode) -> Measured:
    make_folder(tmp_path, "tiny", TINY)
    case = Case(model="tiny", mode=mode, device="cpu", backend=backend, batch_size=4)
    settings = Settings(time_limit_s=0.05, min_time_s=0.02)
    spec = find_models([tmp_path]).spec("tiny")
    found = measure_case(Assignment(case=case, spec=spec, device="cpu", settings=settings))
    assert isinstance(found, Measured)
    return found


def test_a_folder_of_the_user_brings_a_change_as_the_manual_says(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "my_benchmarks" / "first_steps"
    folder.mkdir(parents=True)
    monkeypatch.setenv("TORCHZOO_USERBENCHMARK_PATH", str(folder.parent))
    (folder / "backends.py").write_text("BACKENDS = 1 / 0")
    with pytest.raises(TorchzooError, match=r"first_steps.backends\.py: ZeroDivisionError"):
        parse_backend("first_steps/inference")
    page = (ROOT / "docs/writing_a_userbenchmark.md").read_text(encoding="utf-8")
    blocks = re.findall(
        r'^```python title="my_benchmarks/first_steps/(\w+\.py)"\n(.*?)^```', page, re.MULTILINE | re.DOTALL
    )
    for name, code in blocks:
        (folder / name).write_text(code)
    with pytest.raises(TorchzooError, match="'later': it has none"):
        parse_backend("first_steps/inference:later")
    found = measured(tmp_path / "models", parse_backend("first_steps/inference"), Mode.EVAL)
    assert set(found.variants) == {"eager", "candidate"}


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("optimizer:fused", "userbenchmark paper_optimizations: --backend paper_optimizations/optimizer:fused"),
        ("values", "userbenchmark power_values: --backend power_values/values"),
    ],
)
def test_the_name_of_a_change_alone_is_refused_with_the_qualified_one(
    name: str, words: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with contextlib.suppress(SystemExit):  # by argparse
        assert cli.main(["run", "resnet18", "-d", "cpu", "--backend", name, "--dry-run"]) == cli.USAGE
    [line] = capsys.readouterr().err.splitlines()
    assert words in line
