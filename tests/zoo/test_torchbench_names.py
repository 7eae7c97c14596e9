"""Every model of TorchBench has a model of ours that does its work, or a reason why none does."""

from __future__ import annotations

import msgspec
import pytest

from examples import ROOT
from torchzoo.files import read_yaml
from torchzoo.zoo.catalog import find_models


class Names(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    core: dict[str, str]
    canary: dict[str, str]


NAMES = read_yaml(ROOT / "torchzoo/zoo/torchbench_names.yaml", Names)
BOTH = NAMES.core | NAMES.canary
DOCUMENT = (ROOT / "docs/torchbench.md").read_text(encoding="utf-8").splitlines()
OURS = set(find_models().names)


def test_all_models_of_that_commit_are_listed() -> None:
    assert (len(NAMES.core), len(NAMES.canary), len(BOTH)) == (104, 25, 129)


@pytest.mark.parametrize("name", BOTH)
def test_a_name_has_a_model_of_ours_or_a_reason(name: str) -> None:
    ours, _, remark = BOTH[name].partition("; ")
    assert ours in OURS or (ours == "nothing" and remark)
    assert remark or ours == name, "what differs?"


@pytest.mark.parametrize("name", sorted(OURS & BOTH.keys()))
def test_a_model_of_the_same_name_does_the_work(name: str) -> None:
    assert BOTH[name] == name


@pytest.mark.parametrize("name", BOTH)
def test_the_document_says_the_same(name: str) -> None:
    ours, _, remark = BOTH[name].partition("; ")
    assert f"| {name} | {ours} | {remark} |" in DOCUMENT
