"""What `torchzoo check-model` says of steps that depend on those before them, or write into their data."""

from __future__ import annotations

from pathlib import Path

import pytest

from torchzoo.measure.repeated_step import step_notes
from torchzoo.zoo.contract import check_model
from torchzoo.zoo.spec import read_spec
from user_models import METADATA, TINY, make_folder

GOOD = METADATA.replace("parameters: 72", "parameters: 74")
BUILD = "\n    def build(self):\n        super().build()\n        "
FORWARD = "\n    def forward(self):\n        self.calls = getattr(self, 'calls', 0) + 1\n        "


def notes(root: Path, code: str) -> list[str]:
    spec = read_spec(make_folder(root, "tiny", code, GOOD))
    assert check_model(spec) == []
    return step_notes(spec)


@pytest.mark.parametrize(
    "code",
    [
        TINY,
        TINY.replace("nn.Flatten()", "nn.BatchNorm2d(2, affine=False), nn.Flatten()"),
        TINY.replace("nn.Flatten()", "nn.Dropout(0.5), nn.Flatten()"),
        TINY + FORWARD + "return super().forward() + 0.1 * torch.rand(2)\n",
        TINY + BUILD + "self.cache = torch.zeros(2, 3, 4, 4)\n" + FORWARD + "self.cache.copy_(self.batch.inputs[0])\n"
        "        return self.network(self.cache)\n",
        TINY + FORWARD + "self.kept = super().forward()\n        return self.kept\n",
    ],
    ids=["plain", "running statistics", "dropout", "random numbers", "a cache that is filled anew", "a counter"],
)
def test_nothing_is_said_of_steps_that_are_alike(tmp_path: Path, code: str) -> None:
    assert notes(tmp_path, code) == []


@pytest.mark.parametrize(
    "change",
    [
        "return super().forward() * self.calls\n",
        "return super().forward() if self.calls % 2 else self.network(self.batch.inputs[0] * 2)\n",
        "self.last = super().forward() + getattr(self, 'last', torch.zeros(2)).detach()\n        return self.last\n",
    ],
    ids=["a counter", "every second step", "a value kept from the last step"],
)
def test_a_step_that_depends_on_the_ones_before_is_named_in_both_modes(tmp_path: Path, change: str) -> None:
    found = notes(tmp_path, TINY + FORWARD + change)
    assert [note.partition(":")[0] for note in found] == ["train", "eval"]
    assert all("a step depends on the ones before it" in note for note in found)


def test_a_step_that_writes_into_its_data_is_named(tmp_path: Path) -> None:
    found = notes(tmp_path, TINY + FORWARD + "self.batch.inputs[0].mul_(0.5)\n        return super().forward()\n")
    assert {note.partition(":")[0] for note in found} == {"train", "eval"}
    assert any("a step writes into batch.inputs[0]" in note for note in found)
