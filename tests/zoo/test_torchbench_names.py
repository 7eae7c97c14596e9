"""Every model of TorchBench has a model of ours that does its work, or a line that says why none does.

`python tests/zoo/test_torchbench_names.py` writes the tables of docs/torchbench.md.
"""

from __future__ import annotations

import hashlib
from pathlib import Path

import pytest

from torchzoo.dynamobench.names import split, torchbench_names
from torchzoo.zoo.catalog import find_models

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs" / "torchbench.md"


NAMES = torchbench_names()
BOTH = NAMES.core | NAMES.canary
CATALOG = find_models()

#: SHA-256 of the names of the folders in torchbenchmark's `models` and `canary_models` at that commit: each name with a
#: line feed, in the order of their bytes.
UPSTREAM = {
    "core": "85c7f4f4ffcf18a8b99b9185b2762ef6c488351ebb55195c5ef6fc5b67bd1fae",
    "canary": "d13d4c63a473e1fd809aeafb18c6998c5492f389f1f35b48860e7cc23e03803d",
}


def page() -> str:
    """docs/torchbench.md with the tables that NAMES means, below what it says first."""
    parts = [PAGE.read_text(encoding="utf-8").partition("\n## Core models")[0].rstrip("\n")]
    for heading, names in (("Core models", NAMES.core), ("Canary models", NAMES.canary)):
        rows = [f"| {name} | {' | '.join(split(line))} |" for name, line in names.items()]
        columns = ["| TorchBench | ours | what differs, or what it is |", "| --- | --- | --- |"]
        parts.append("\n".join([f"## {heading}", "", *columns, *rows]))
    return "\n\n".join(parts) + "\n"


@pytest.mark.parametrize(("group", "count"), [("core", 104), ("canary", 25)])
def test_the_names_are_those_of_that_commit(group: str, count: int) -> None:
    names = sorted(getattr(NAMES, group))
    assert len(names) == count
    assert hashlib.sha256("".join(f"{name}\n" for name in names).encode()).hexdigest() == UPSTREAM[group]


def test_every_core_model_has_one_of_ours() -> None:
    assert [name for name, line in NAMES.core.items() if split(line)[0] == "nothing"] == []


@pytest.mark.parametrize("name", BOTH)
def test_a_name_has_a_model_of_ours_or_a_reason(name: str) -> None:
    ours, remark = split(BOTH[name])
    assert ours in CATALOG or (ours == "nothing" and remark)
    assert remark or ours == name, "what differs?"


@pytest.mark.parametrize("name", sorted(set(CATALOG.names) & BOTH.keys()))
def test_a_model_of_the_same_name_does_the_work(name: str) -> None:
    assert BOTH[name] == name


def test_the_page_says_the_same() -> None:
    assert PAGE.read_text(encoding="utf-8") == page(), "run `python tests/zoo/test_torchbench_names.py`"


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
