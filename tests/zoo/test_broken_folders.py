"""What the contract finds in folders that break it, each in one way."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import torch
from torch.profiler import ProfilerActivity

from torchzoo.case import Mode, Precision
from torchzoo.zoo import contract
from torchzoo.zoo.contract import check_model
from torchzoo.zoo.spec import SpecError, read_spec
from torchzoo.zoo.waiting import synchronising_operators
from user_models import METADATA, TINY, make_folder

GOOD = METADATA.replace("parameters: 72", "parameters: 74")
BUILD = "\n    def build(self):\n        super().build()\n        "
TRAIN = "\n    def train_step(self):\n        loss = super().train_step()\n        "
EVAL = "\n    def eval_step(self):\n        outputs = super().eval_step()\n        "
OPTIMIZER = """
    def build_optimizer(self):
        return Waiting(self.network.parameters())


class Waiting(torch.optim.Adam):
    def step(self):
        torch.sparse_coo_tensor([[0, 0]], [1.0, 2.0], (1,), check_invariants=False).coalesce()
        super().step()
"""
#: From 1 to 2, and never the same twice. (A clock's seconds are too coarse in fp32.)
RANDOM = "torch.tensor(1 + time.perf_counter_ns() % 1_000_003 / 1_000_003)"


def broken(root: Path, code: str = TINY, metadata: str = GOOD) -> list[str]:
    return check_model(read_spec(make_folder(root, "tiny", code, metadata)))


@pytest.mark.parametrize(
    ("code", "metadata"),
    [
        (TINY, GOOD),
        (TINY + BUILD + "if self.mode == 'eval': self.network[0].bias.data.mul_(2)\n", GOOD),
        (TINY + BUILD + "self.network.unused = nn.Parameter(torch.ones(1))\n", "unchanged_parameters: {'*unused': so}"),
        (TINY + BUILD + "self.network[0].bias.requires_grad = False\n", GOOD),
        (TINY + TRAIN + "return loss + 0 * loss.item()\n", GOOD + "syncs: {train: so}\n"),
        (TINY + BUILD + "for weight in self.network[-1].parameters(): weight.data.zero_()\n", GOOD),
    ],
    ids=["plain", "other weights in evaluation", "unchanged", "frozen", "waiting", "a head of zeros"],
)
def test_a_folder_may(tmp_path: Path, code: str, metadata: str) -> None:
    metadata = metadata if metadata.startswith(GOOD) else GOOD.replace("74", "75") + metadata
    assert broken(tmp_path, code, metadata) == []


def test_a_limit_that_nobody_knows_is_an_error_with_the_nearest_one(tmp_path: Path) -> None:
    with pytest.raises(SpecError, match=r"unknown limit 'int_8': did you mean int8\?"):
        read_spec(make_folder(tmp_path, "tiny", metadata=GOOD + "limits: [int_8]\n"))


def test_a_models_own_rules_come_before_those_of_its_limits(tmp_path: Path) -> None:
    metadata = GOOD + "limits: [int8]\nskips: [{reason: mine}]\nsyncs: {eval: mine}\n"
    spec = read_spec(make_folder(tmp_path, "tiny", metadata=metadata))
    assert len(spec.skips) > 2
    assert spec.skips[0].reason == spec.syncs[Mode.EVAL] == "mine"
    assert Precision.FP16 in spec.skips[-1].precision
    assert "fake quantization" in spec.syncs[Mode.TRAIN]


@pytest.mark.parametrize(
    ("code", "metadata", "found"),
    [
        (TINY.replace("2026", "now"), GOOD, ["the docstring of __init__.py cites no source"]),
        (TINY, GOOD.replace("https", "http"), ["paper is no link"]),
        (TINY, METADATA, ["train: 74 parameters; metadata.yaml says 72"]),
        (
            TINY + "\n    def networks(self):\n        return {'network': self.network.eval()}\n",
            GOOD,
            ["train: network network is not in the mode train"],
        ),
        (
            TINY + "\n    @property\n    def example_inputs(self):\n        return (self.batch.inputs[0].clone(),)\n",
            GOOD,
            ["train: example_inputs are not in model.batch", "eval: example_inputs are not in model.batch"],
        ),
        (
            TINY + BUILD + f"self.network[0].bias.data += {RANDOM}\n",
            GOOD,
            ["eval: a second build gives other values for network.0.bias", "train: a second build gives other values"],
        ),
        (
            TINY + BUILD + f"if self.mode == 'eval': self.network[0].bias.data += {RANDOM}\n",
            GOOD,
            ["eval: a second build gives other values for network.0.bias"],
        ),
        (
            TINY.replace("3, 4, 4),)", f"3, 4, 4) * {RANDOM},)"),
            GOOD,
            [f"{mode}: a second build gives other values for batch.inputs[0]" for mode in ("eval", "train")],
        ),
        (
            TINY.replace("self.batch_size, 3, 4", "2, 3, 4").replace("(self.batch_size, 2)", "(2, 2)"),
            GOOD,
            ["eval: a batch of twice the size has 98 elements", "train: a batch of twice the size has 98 elements"],
        ),
        (
            TINY + "\n    @property\n    def samples_per_step(self):\n        return 3\n",
            GOOD,
            [
                f"{mode}: {what}"
                for mode in ("eval", "train")
                for what in ("samples_per_step, 3, is no multiple", "a batch of twice the size has 3 samples")
            ],
        ),
        (
            TINY + BUILD + "self.network.unused = nn.Parameter(torch.ones(1))\n",
            GOOD.replace("74", "75"),
            ["train: 4 train steps do not change network.unused"],
        ),
        (TINY + TRAIN + "return loss.unsqueeze(0)\n", GOOD, ["train: the loss has 1 dimensions"]),
        (TINY + TRAIN + "return loss.requires_grad_()\n", GOOD, ["train: the loss is not detached"]),
        (TINY + TRAIN + "return (loss - 100).log()\n", GOOD, ["train: a step returns numbers that are not finite"]),
        (TINY + EVAL + "return outputs / 0\n", GOOD, ["eval: a step returns numbers that are not finite"]),
        (
            TINY + EVAL + "return outputs.argmax(1)\n",
            GOOD,
            ["eval: a step returns no tensor of floating-point or complex numbers"],
        ),
        (
            TINY + TRAIN + "return loss + 0 * loss.item()\n",
            GOOD,
            ["train: a step waits for the device by aten::_"],
        ),
        (TINY + OPTIMIZER, GOOD, ["train: a step waits for the device by aten::_coalesce"]),
        (
            TINY + EVAL + "return outputs[outputs < 9]\n",
            GOOD,
            ["eval: a step waits for the device by aten::index by"],
        ),
        (TINY, GOOD + "syncs: {eval: so}\n", ["eval: metadata.yaml's syncs says that a step waits"]),
    ],
)
def test_a_folder_that_breaks_the_contract(tmp_path: Path, code: str, metadata: str, found: list[str]) -> None:
    lines = broken(tmp_path, code, metadata)
    assert [line[: len(start)] for line, start in zip(lines, found, strict=True)] == found


def test_beside_a_gpu_only_copies_and_reads_of_its_tensors_make_a_step_wait() -> None:
    values = torch.zeros(8, device="meta")  # stands for a GPU: CPU tensors are on another device
    with synchronising_operators(values.device) as seen:
        float(torch.ones(()))
    assert seen == set()
    with synchronising_operators(values.device) as seen:
        values[torch.arange(4)]
    assert seen == {"aten::index by a CPU tensor"}
    with synchronising_operators() as seen:
        float(torch.ones(()))
    assert seen == {"aten::_local_scalar_dense"}


class WatchingDevice:
    """A device that can tell whether a step waits: the model's own code asks for WATCHED."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self._monkeypatch = monkeypatch

    @contextmanager
    def waiting_forbidden(self) -> Iterator[bool]:
        with self._monkeypatch.context() as inside:
            inside.setenv("WATCHED", "1")
            yield True

    def synchronize(self) -> None: ...

    def activity(self) -> ProfilerActivity:
        return ProfilerActivity.CPU


@pytest.mark.parametrize(
    ("step", "syncs", "found"),
    [
        ("", "", []),
        (
            "",
            "syncs: {eval: so}\n",
            ["eval: metadata.yaml's syncs says that a step waits for the device, but it does not"],
        ),
        ("if os.environ.get('WATCHED'): raise RuntimeError('called a wait')\n", "syncs: {eval: so}\n", []),
        (
            "if os.environ.get('WATCHED'): raise RuntimeError('called a wait')\n",
            "",
            ["eval: a step waits for the device: called a wait"],
        ),
        ("with torch.profiler.record_function('Memcpy HtoD'): pass\n", "syncs: {eval: so}\n", []),
        ("with torch.profiler.record_function('Memcpy HtoD'): pass\n", "", ["eval: a step has a Memcpy HtoD"]),
    ],
)
def test_on_an_accelerator_a_step_waits_if_and_only_if_metadata_says_so(
    step: str, syncs: str, found: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(torch.accelerator, "current_accelerator", lambda: torch.device("cpu"))
    monkeypatch.setattr(contract, "device_of", lambda _: WatchingDevice(monkeypatch))
    spec = read_spec(
        make_folder(tmp_path, "tiny", TINY + EVAL + (step or "pass\n") + "        return outputs\n", GOOD + syncs)
    )
    assert contract.check_waiting(spec, Mode.EVAL) == found
