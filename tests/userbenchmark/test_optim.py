"""The userbenchmark `optim`: the models that its plan writes, and a run for real."""

from __future__ import annotations

import re
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import yaml
from benchmark_runs import report, run_of, table

from examples import ROOT
from examples import record as example
from in_this_process import torchzoo
from torchzoo.case import Mode
from torchzoo.record import Measured
from torchzoo.store import StoreError, read_run
from torchzoo.studies import userbenchmark
from torchzoo.studies.userbenchmark import Choice
from torchzoo.zoo.catalog import find_models, load_model_class
from torchzoo.zoo.folders import import_folder
from torchzoo.zoo.spec import read_spec
from user_models import make_collection, make_folder

# --- its report ---


def test_optim_refuses_a_run_that_is_not_its_own(tmp_path: Path) -> None:
    with pytest.raises(StoreError, match="was not made by"):
        report("optim", run_of([example()], tmp_path))


# --- its models ---


@pytest.fixture(scope="module")
def optim_models(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folders that the plan writes for a tiny model of the user's."""
    base = tmp_path_factory.mktemp("optim")
    make_folder(base / "zoo", "tiny")
    choice = Choice(patterns=("tiny",), models_dirs=(str(base / "zoo"),), folder=base)
    request = userbenchmark.load("optim").plan(choice)
    assert sorted(request.patterns) == sorted(find_models(map(Path, request.models_dirs)).select(["*@tiny"]))
    return base / "models"


def test_an_optimizer_steps_over_the_parameters_of_a_collections_model(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TORCHZOO_COLLECTIONS_PATH", str(tmp_path / "collections"))
    make_collection(tmp_path / "collections")
    choice = Choice(patterns=("tiny:wide", "tiny:deep:2"), models_dirs=(), folder=tmp_path)
    catalog = find_models(map(Path, userbenchmark.load("optim").plan(choice).models_dirs))
    for source, parameters in (("tiny:wide", 146), ("tiny:deep:2", 74)):
        spec = catalog.spec(f"adam-foreach@{source}")
        model = load_model_class(spec)(Mode.TRAIN, "cpu", 1)
        assert sum(p.numel() for p in model.networks()["network"].parameters()) == spec.parameters == parameters
        assert model.measured_step().isfinite().all()


def folders() -> list[str]:
    implementations = import_optim().IMPLEMENTATIONS
    return [f"{one.group}-{one.name.replace(' ', '-')}@tiny" for one in implementations]


def import_optim() -> ModuleType:
    folder = ROOT / "userbenchmark" / "optim"
    return import_folder(folder, "torchzoo_userbenchmarks.optim")


@pytest.mark.parametrize("name", folders())
def test_an_optimizers_step_changes_every_parameter_again_and_again(name: str, optim_models: Path) -> None:
    from torchzoo.zoo.contract import trainable_parameters, unchanged

    spec = read_spec(optim_models / name)
    if any(rule.device == ("cpu",) for rule in spec.skips):
        pytest.skip(spec.skips[-1].reason)
    model = load_model_class(spec)(Mode.TRAIN, "cpu", 1)
    assert model.samples_per_step == 4  # two weights, two biases
    assert sum(p.numel() for network in model.networks().values() for p in network.parameters()) == 74
    for _ in range(3):
        with unchanged(trainable_parameters(model)) as names:
            model.train_step()
        assert names == []


@pytest.mark.gpu
def test_capturable_steps_on_an_accelerator(optim_models: Path) -> None:
    from torchzoo.zoo.contract import trainable_parameters, unchanged

    model = load_model_class(read_spec(optim_models / "adam-capturable@tiny"))(Mode.TRAIN, "cuda", 1)
    with unchanged(trainable_parameters(model)) as names:
        model.train_step()
    assert names == []


def operators_of(step: Any) -> set[str]:
    from torch.utils._python_dispatch import TorchDispatchMode

    class Seen(TorchDispatchMode):
        def __init__(self) -> None:
            super().__init__()
            self.names: set[str] = set()

        def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            self.names.add(func._schema.name)
            return func(*args, **(kwargs or {}))

    with Seen() as seen:
        step()
    return seen.names


@pytest.mark.parametrize(
    ("name", "has", "has_not"),
    [
        ("adam-for-loop", {"aten::addcdiv_"}, {"aten::_foreach_addcdiv_", "aten::_fused_adam_"}),
        ("adam-foreach", {"aten::_foreach_addcdiv_"}, {"aten::addcdiv_", "aten::_fused_adam_"}),
        ("adam-fused", {"aten::_fused_adam_"}, {"aten::addcdiv_", "aten::_foreach_addcdiv_"}),
        ("sgd-for-loop", {"aten::add_"}, {"aten::_foreach_add_", "aten::_fused_sgd_"}),
        ("sgd-foreach", {"aten::_foreach_add_"}, {"aten::add_", "aten::_fused_sgd_"}),
        ("sgd-fused", {"aten::_fused_sgd_"}, {"aten::add_", "aten::_foreach_add_"}),
        ("zero_grad-for-loop", {"aten::zero_", "aten::add_"}, {"aten::_foreach_zero_"}),
        ("zero_grad-foreach", {"aten::_foreach_zero_", "aten::add_"}, {"aten::zero_"}),
        (
            "zero_grad-set-to-None",
            {"aten::detach"},
            {"aten::zero_", "aten::_foreach_zero_", "aten::add_", "aten::clone"},
        ),
    ],
)
def test_each_implementation_is_what_its_name_says(
    name: str, has: set[str], has_not: set[str], optim_models: Path
) -> None:
    model = load_model_class(read_spec(optim_models / f"{name}@tiny"))(Mode.TRAIN, "cpu", 1)
    model.train_step()
    seen = operators_of(model.train_step)
    assert has <= seen
    assert not has_not & seen


def test_a_models_shared_and_frozen_parameters_stay_so(tmp_path: Path) -> None:
    code = '''"""Two networks that share a layer, one of them frozen in part (torchzoo's tests, 2026)."""
from torch import nn
from torchzoo.model import Model


class Model(Model):
    def build(self):
        shared = nn.Linear(2, 3)
        self.one = nn.Sequential(shared, nn.Linear(3, 1))
        self.two = nn.Sequential(shared, nn.Linear(3, 4).requires_grad_(False))
        self.batch = ()

    def networks(self):
        return {"one": self.one, "two": self.two}

    @property
    def example_inputs(self):
        return ()
'''
    make_folder(tmp_path / "zoo", "shares", code)
    choice = Choice(patterns=("shares",), models_dirs=(str(tmp_path / "zoo"),), folder=tmp_path)
    userbenchmark.load("optim").plan(choice)
    model = load_model_class(read_spec(tmp_path / "models" / "adam-fused@shares"))(Mode.TRAIN, "cpu", 1)
    one, two = (list(network.parameters()) for network in model.networks().values())
    assert [list(p.shape) for p in two] == [[3, 2], [3], [4, 3], [4]]
    assert one[0] is two[0]
    assert [p.requires_grad for p in two] == [True, True, False, False]
    assert model.samples_per_step == 4


def test_a_model_that_is_not_trained_is_skipped_with_its_reason(tmp_path: Path) -> None:
    metadata = {
        "domain": "other",
        "task": "testing",
        "paper": "https://example.org",
        "source": "tests",
        "requirements": [],
        "parameters": 72,
        "batch_size": {"eval": 4},
        "smoke_batch_size": 2,
        "skips": [{"mode": "train", "reason": "there is nothing to learn"}],
    }
    make_folder(tmp_path / "zoo", "fixed", metadata=yaml.safe_dump(metadata))
    choice = Choice(patterns=("fixed",), models_dirs=(str(tmp_path / "zoo"),), folder=tmp_path)
    userbenchmark.load("optim").plan(choice)
    rules = read_spec(tmp_path / "models" / "sgd-fused@fixed").skips
    assert "fixed is not trained: there is nothing to learn" in [rule.reason for rule in rules]


# --- for real ---


@pytest.mark.slow
@pytest.mark.xdist_group("run")
def test_optim_from_the_command_line_to_its_report_and_on_with_resume(tmp_path: Path) -> None:
    make_folder(tmp_path / "zoo", "tiny")
    options = ["-d", "cpu", "--threads", "1", "--time-limit", "0.1", "--models-dir", str(tmp_path / "zoo")]
    out = tmp_path / "run"

    done = torchzoo("userbenchmark", "optim", "tiny", *options, "-o", str(out))
    assert done.returncode == 0, done.stderr
    records = read_run(out).records
    assert sum(isinstance(record.outcome, Measured) for record in records) == 9  # capturable has no CPU form
    first = (out / "report.md").read_text()
    rows = {row[0]: row[1:] for row in table(first, "parameters of")}
    assert rows["tiny"][:2] == ["74", "4"]
    assert "capturable keeps Adam's step counts" in first

    lines = (out / "records.jsonl").read_bytes().splitlines(keepends=True)
    (out / "records.jsonl").write_bytes(b"".join(lines[:-1]))
    again = torchzoo("userbenchmark", "optim", "--resume", str(out))
    assert again.returncode == 0, again.stderr
    assert len(re.findall(r"^\[\d+/10\]", again.stderr, re.MULTILINE)) == 1  # one case was left
    assert len(read_run(out).records) == 10
    assert "10 cases: 9 measured" in (out / "report.md").read_text()
    twice = torchzoo("userbenchmark", "optim", "tiny", *options, "-o", str(out))
    assert twice.returncode == 2
    assert "--resume" in twice.stderr
