"""The contract for models of collections: a sample with those of the zoo, the models of suites once a week.

    python -m pytest -m weekly tests/zoo                                     # the models of all suites
    TORCHZOO_SAMPLE=7 python -m pytest -m contract tests/zoo -k sampled      # another sample

The sample changes with the table, and every week where CI sets TORCHZOO_WEEKLY.
"""

from __future__ import annotations

import hashlib
import os
import random
from datetime import UTC, datetime
from pathlib import Path

import pytest
from test_contract import skip_without_its_libraries

from torchzoo.zoo import contract
from torchzoo.zoo.catalog import find_models
from torchzoo.zoo.collections import Collection
from torchzoo.zoo.spec import ModelSpec
from torchzoo.zoo.suites import read_suite, suite_names

CATALOG = find_models()
SAMPLE = 5  # models of a session, over all collections


def seed(collections: dict[str, Collection]) -> str:
    """What decides on the sample."""
    given = os.environ.get("TORCHZOO_SAMPLE")
    if given is not None:
        return given
    if "TORCHZOO_WEEKLY" in os.environ:
        return f"{datetime.now(UTC):%G-%V}"
    tables = [(Path(one.folder) / "models.csv").read_bytes() for one in collections.values()]
    return hashlib.sha256(b"".join(tables)).hexdigest()


def sampled(collections: dict[str, Collection], count: int = SAMPLE) -> list[str]:
    """Some names: a share of each collection, the same in every worker of a session."""
    draw = random.Random(seed(collections))
    names = {name: draw.sample(one.names, min(count, len(one.names))) for name, one in sorted(collections.items())}
    in_turns = [name for turn in range(count) for few in names.values() for name in few[turn : turn + 1]]
    return in_turns[:count]


def of_suites() -> list[str]:
    """The models of collections that a suite has."""
    names = {name for suite in suite_names() for name in read_suite(suite).models}
    return sorted(name for name in names if name not in CATALOG.folders)


def keeps_the_contract(spec: ModelSpec) -> None:
    skip_without_its_libraries(spec)
    assert contract.check_model(spec) == []


@pytest.mark.contract
@pytest.mark.xdist_group("hungry")
@pytest.mark.parametrize("name", sampled(CATALOG.collections))
def test_a_sampled_model_keeps_the_contract(name: str) -> None:
    keeps_the_contract(CATALOG.spec(name))


@pytest.mark.weekly
@pytest.mark.xdist_group("hungry")
@pytest.mark.parametrize("name", of_suites())
def test_a_suites_model_keeps_the_contract(name: str) -> None:
    keeps_the_contract(CATALOG.spec(name))
