"""PyTorch's dynamobench on our models: each name resolves, and what can't run is refused with a reason.

A made-up dynamobench (`fake/`) imports and calls what the real one does. Set TORCHZOO_PYTORCH to a checkout of pytorch
to run the real one, too.
"""

from __future__ import annotations

import importlib
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from torchzoo.cli import main
from torchzoo.commands import dynamobench
from torchzoo.dynamobench import checkout, launch
from torchzoo.dynamobench.adapter import ByPosition, benchmark_class, callable_by_position, check_loss
from torchzoo.dynamobench.finder import ZooFinder, install
from torchzoo.dynamobench.names import PLAIN, SPECIAL, NameRefused, listed, resolve, split, torchbench_names
from torchzoo.errors import UsageError
from torchzoo.zoo.catalog import Catalog, find_models
from user_models import METADATA, TINY

FAKE = Path(__file__).with_name("fake")
CATALOG = find_models()
TABLE = torchbench_names().core | torchbench_names().canary

#: Tiny models: one that trains, one that doesn't, one whose outputs have no gradient, one with named inputs.
NO_LOSS = (
    TINY.replace("outputs, targets):", "outputs, targets):")
    .replace(
        "return nn.Sequential(nn.Conv2d(3, 2, 3), nn.ReLU(), nn.Flatten(), nn.Linear(8, 2))  # 74 parameters",
        "return Labels()",
    )
    .replace(
        "class Model(",
        """class Labels(nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(3))

    def forward(self, images):
        return (images.mean((2, 3)) * self.weight).argmax(1)


class Model(""",
    )
)
NAMED = TINY.replace(
    "return Batch((self.data.images(self.batch_size, 3, 4, 4),), ",
    'return Batch({"input": self.data.images(self.batch_size, 3, 4, 4)}, ',
)
EVAL_ONLY = (
    METADATA.replace("{train: 4, eval: 4}", "{eval: 4}") + "skips: [{mode: train, reason: a sampler of images}]\n"
)


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder of tiny models."""
    root = tmp_path_factory.mktemp("models")
    made = {"tiny": (METADATA, TINY), "labels": (METADATA, NO_LOSS), "named": (METADATA, NAMED)}
    for name, (metadata, code) in {**made, "sampler": (EVAL_ONLY, TINY)}.items():
        folder = root / f"dynamobench_{name}"
        folder.mkdir()
        (folder / "metadata.yaml").write_text(metadata)
        (folder / "__init__.py").write_text(code)
    return root


@pytest.fixture
def python(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """What a process that becomes dynamobench changes is put back."""
    monkeypatch.setattr(sys, "path", list(sys.path))
    monkeypatch.setattr(sys, "meta_path", list(sys.meta_path))
    monkeypatch.setitem(sys.modules, "__main__", sys.modules["__main__"])
    before = set(sys.modules)
    yield
    for name in set(sys.modules) - before:
        if name.partition(".")[0] in ("torchbenchmark", "common", "torchzoo_models"):
            del sys.modules[name]


def module_of(name: str, catalog: Catalog = CATALOG) -> Any:
    install(ZooFinder(catalog, lambda name, found: benchmark_class(catalog, name, found)))
    return importlib.import_module(f"torchbenchmark.models.{name}")


def launched(monkeypatch: pytest.MonkeyPatch, models: Path, output: Path, *options: str) -> list[dict[str, Any]]:
    """What the made-up dynamobench writes, started in this process as `launch.py` does."""
    monkeypatch.setenv("TORCHZOO_PATH", str(models))
    monkeypatch.setenv(launch.FOLDER, str(FAKE))
    monkeypatch.setattr(sys, "argv", [launch.__file__, "--output-directory", str(output), *options])
    launch.main()
    return rows(output)


def rows(output: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (output / "rows.jsonl").read_text().splitlines()]


# --- names ---


@pytest.mark.parametrize("name", sorted(TABLE))
def test_a_name_of_torchbench_means_a_model_of_ours_or_is_refused(name: str) -> None:
    found = resolve(name, CATALOG)
    ours, remark = split(TABLE[name])
    if name in SPECIAL:
        assert isinstance(found, NameRefused)
        assert SPECIAL[name] in found.reason
    elif ours == "nothing":
        assert found == NameRefused(f"{name}: torchzoo has no model that does its work: {remark}")
    else:
        assert found == ours
        assert ours in CATALOG


@pytest.mark.usefixtures("python")
def test_modules_have_what_scripts_read() -> None:
    model = module_of("sam_fast").Model  # the table says that sam does its work
    assert (model.name, model.spec.name) == ("sam_fast", "sam")
    assert (model.DEFAULT_TRAIN_BSIZE, model.DEFAULT_EVAL_BSIZE) == (None, 1)
    assert module_of(f"{PLAIN}resnet18").Model.name == "torchzoo_resnet18"


# --- refusals ---


@pytest.mark.parametrize(
    ("name", "test", "more", "reason"),
    [
        ("codellama", "eval", {}, "torchzoo has no model that does its work: Llama 2 7B"),
        ("torchrec_dlrm", "eval", {}, "take --only dlrm_dcnv2"),
        ("pyhpc_equation_of_state", "train", {}, "pyhpc_equation_of_state has no train on cpu: "),
        ("resnet18", "train", {"model_kwargs": {"boxes": 4}}, "takes no boxes=4; .* take --only torchzoo_resnet18"),
        ("resnet18", "eval", {"extra_args": ["--part", "head"]}, "the model takes no --part"),
    ],
)
@pytest.mark.usefixtures("python")
def test_refusals_say_why(name: str, test: str, more: dict[str, Any], reason: str) -> None:
    with pytest.raises(NotImplementedError, match=reason):
        module_of(name).Model(test=test, device="cpu", batch_size=2, **{"extra_args": [], **more})


@pytest.mark.usefixtures("python")
def test_a_batch_that_a_model_cannot_have_is_that_of_its_smoke_test(capsys: pytest.CaptureFixture[str]) -> None:
    model = module_of("pyhpc_equation_of_state").Model(test="eval", device="cpu", batch_size=4, extra_args=[])
    assert model.batch_size == 104
    assert "a batch of 4 grid points fills no whole columns of 26 levels" in capsys.readouterr().out
    assert module_of("lennard_jones").Model(test="eval", device="cpu", batch_size=3).batch_size == 3


class Cached(nn.Module):
    """Returns what has no mean."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(2, 2)

    def forward(self, values: torch.Tensor) -> Any:
        return self.layer(values), object()


class Marked(nn.Module):
    """Needs what a copy of a parameter does not have, in training mode alone."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(2))
        self.weight.mark = 1

    def forward(self, values: torch.Tensor) -> torch.Tensor:
        return values * self.weight * (self.weight.mark if self.training else 1)


class Sometimes(Cached):
    """Returns logits in evaluation mode alone."""

    def forward(self, values: torch.Tensor) -> Any:
        return super().forward(values) if self.training else self.layer(values)


def test_a_loss_must_be_formed_in_one_mode_at_least() -> None:
    inputs = (torch.ones(1, 2),)
    with pytest.raises(NotImplementedError, match=r"x: dynamobench can't form a loss from its outputs: .*object"):
        check_loss("x", Cached(), inputs)
    with pytest.raises(NotImplementedError, match="no gradient leads from them to a parameter"):
        check_loss("x", nn.Identity(), inputs)
    with pytest.raises(NotImplementedError, match="all parameters of its main network, Linear, are frozen"):
        check_loss("x", nn.Linear(2, 2).requires_grad_(requires_grad=False), inputs)
    for network in (Sometimes(), Marked()):
        check_loss("x", network, inputs)
        assert network.training  # only copies were tried
    with pytest.raises(NotImplementedError, match=r"a copy of the network does not run: .* no attribute 'mark'"):
        check_loss("x", nn.Sequential(Marked(), Cached()), inputs)


def test_inputs_that_dynamobench_cannot_copy_go_by_position() -> None:
    network = nn.Linear(2, 2)
    tensors = {"input": torch.ones(1, 2)}
    assert callable_by_position(network, tensors) == (network, tensors)
    wrapped, inputs = callable_by_position(Doubled(), {"a": torch.ones(2), "times": 3})
    assert isinstance(wrapped, ByPosition)
    assert isinstance(inputs, tuple)
    assert wrapped(*inputs).tolist() == [3.0, 3.0]


class Doubled(nn.Module):
    def forward(self, times: int, a: torch.Tensor) -> torch.Tensor:
        return a * times


# --- the made-up dynamobench ---


@pytest.mark.parametrize("options", [(), ("--training",)])
@pytest.mark.parametrize("name", ["tiny", "named"])
@pytest.mark.usefixtures("python")
def test_a_model_runs(
    monkeypatch: pytest.MonkeyPatch, models: Path, tmp_path: Path, name: str, options: tuple[str, ...]
) -> None:
    only = f"--only=dynamobench_{name}"
    [row] = launched(monkeypatch, models, tmp_path, only, "--batch-size=3", *options)
    assert (row["name"], row["batch_size"]) == (f"dynamobench_{name}", 3)
    assert abs(row["loss"]) > 0
    assert sys.path[0] == str(FAKE)  # as if its file were the script


@pytest.mark.usefixtures("python")
def test_the_default_batch_is_that_of_the_folder(monkeypatch: pytest.MonkeyPatch, models: Path, tmp_path: Path) -> None:
    [row] = launched(monkeypatch, models, tmp_path, "--only=dynamobench_tiny")
    assert row["batch_size"] == 4


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("labels", "dynamobench can't form a loss from its outputs: no gradient leads from them to a parameter"),
        ("sampler", "dynamobench_sampler has no train on cpu: a sampler of images"),
    ],
)
@pytest.mark.usefixtures("python")
def test_a_model_without_a_loss_fails_to_load_with_the_reason(
    monkeypatch: pytest.MonkeyPatch, models: Path, tmp_path: Path, name: str, reason: str
) -> None:
    [row] = launched(monkeypatch, models, tmp_path, f"--only=dynamobench_{name}", "--training")
    assert row["status"] == "model_fail_to_load"
    assert reason in row["why"]


# --- the command ---


def test_without_a_checkout_the_command_says_how_to_get_one(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.delenv(checkout.VARIABLE, raising=False)
    assert main(["dynamobench", "--", "--only", "resnet18"]) == 2
    said = capsys.readouterr().err
    assert said.startswith("torchzoo: error: name a checkout of pytorch with --pytorch DIR")
    assert f"-b v{torch.__version__.partition('+')[0]} https://github.com/pytorch/pytorch" in said
    assert main(["dynamobench", "--pytorch", str(tmp_path)]) == 2
    assert "has no benchmarks/dynamo/torchbench.py" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("version", "branch"), [("2.15.0+cu130", "v2.15.0"), ("2.16.0.dev20261120+cpu", "main"), ("2.16.0a0+git1", "main")]
)
def test_a_nightly_needs_the_main_branch(version: str, branch: str) -> None:
    with pytest.raises(UsageError, match=f"--sparse -b {branch} https://github.com/pytorch/pytorch "):
        checkout.dynamobench_folder(None, version)


@pytest.mark.parametrize("place", checkout.FOLDERS)
def test_dynamobench_is_found_in_a_checkout(tmp_path: Path, place: str) -> None:
    folder = tmp_path / place
    folder.mkdir(parents=True, exist_ok=True)
    for name in checkout.FILES:
        (folder / name).touch()
    assert checkout.dynamobench_folder(tmp_path, "2.15.0") == folder.resolve()


@pytest.mark.parametrize("option", ["--multiprocess", "--fsdp", "--part=1"])
def test_options_that_need_other_models_are_refused(option: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["dynamobench", "--pytorch", str(FAKE), "--", "--only", "x", option]) == 2
    assert f"dynamobench {option.partition('=')[0]} does not work on these models" in capsys.readouterr().err


def test_options_behind_the_dashes_reach_dynamobench(monkeypatch: pytest.MonkeyPatch, models: Path) -> None:
    started: list[tuple[list[str], dict[str, str]]] = []
    statuses = [-9, 3]

    def run(command: list[str], *, env: dict[str, str], **_: Any) -> subprocess.CompletedProcess[str]:
        started.append((command, env))
        return subprocess.CompletedProcess(command, statuses.pop())

    monkeypatch.setattr(dynamobench.subprocess, "run", run)
    monkeypatch.setenv("TORCHZOO_PATH", "/before")
    monkeypatch.setattr(dynamobench, "find_models", lambda _: CATALOG)
    words = ["dynamobench", "--pytorch", str(FAKE), "--models-dir", str(models), "--", "--only", "tiny", "-d", "cpu"]
    assert main(words) == 3  # dynamobench's own status
    assert main(words) == 137  # killed
    command, environment = started[0]
    assert command == [sys.executable, str(Path(launch.__file__).resolve()), "--only", "tiny", "-d", "cpu"]
    assert environment[launch.FOLDER] == str(FAKE)
    assert environment["TORCHZOO_PATH"] == f"/before{os.pathsep}{models}"


@pytest.mark.usefixtures("python")
def test_without_a_name_dynamobench_starts_itself_for_each_model(
    monkeypatch: pytest.MonkeyPatch, models: Path, tmp_path: Path
) -> None:
    started: list[list[str]] = []
    monkeypatch.setattr(subprocess, "check_call", started.append)
    monkeypatch.setenv("TORCHZOO_PATH", str(models))
    monkeypatch.setenv(launch.FOLDER, str(FAKE))
    options = [launch.__file__, "--output-directory", str(tmp_path)]
    monkeypatch.setattr(sys, "argv", options)
    launch.main()
    names = [listed(name) for name in find_models().names]
    assert sorted(command[-1] for command in started) == sorted(f"--only={name}" for name in names)
    assert all(command[:-1] == [sys.executable, *options] for command in started)


@pytest.mark.skipif(checkout.VARIABLE not in os.environ, reason=f"{checkout.VARIABLE} names no checkout of pytorch")
@pytest.mark.parametrize("mode", ["--inference", "--training"])
def test_the_real_dynamobench(tmp_path: Path, mode: str) -> None:
    options = ["--accuracy", mode, "--backend", "aot_eager", "-d", "cpu", "--batch-size", "2"]
    assert main(["dynamobench", "--", *options, "--only", "resnet18", "--output-directory", str(tmp_path)]) == 0
    assert "cpu,resnet18,2,pass," in (tmp_path / "accuracy_aot_eager.csv").read_text()
