"""The figures in docstrings of models are those of the models: parameters, and the FLOPs of a step.

The paper's 84 models need none in their docstrings: `docs/models.md` has them.
"""

from __future__ import annotations

import ast
import re
from math import isclose
from pathlib import Path

import pytest

import pinned_work
import work_with_data
from pinned_work import Batch, Step
from torchzoo.case import Mode
from torchzoo.zoo.catalog import find_models
from torchzoo.zoo.spec import ModelSpec
from torchzoo.zoo.suites import read_suite
from work_with_data import work_at_default

PINNED = pinned_work.read()
WITH_DATA = pinned_work.read(work_with_data.COMMITTED)
CATALOG = find_models()
SPECS = [CATALOG.spec(name) for name in CATALOG.names if name not in read_suite("torchbench").models]
PREFIXES = {"M": 1e6, "G": 1e9, "T": 1e12, "P": 1e15}


def docstring(spec: ModelSpec) -> str:
    """The docstring of a model's module, in one line."""
    code = (Path(spec.folder) / "__init__.py").read_text(encoding="utf-8")
    return " ".join((ast.get_docstring(ast.parse(code)) or "").split())


NUMBER_OR_UNIT = re.compile(r"(?P<number>\d[\d,]*(?:\.\d+)?)|(?P<unit>[MGTP])FLOP\b")


def flops_in(text: str) -> list[float]:
    """Its numbers in FLOPs. A number has the next unit in its sentence, else the last one before it.

    Docstrings say `14.7 GFLOP, and in training 41.0`.
    """
    found: list[float] = []
    last: float | None = None
    for sentence in re.split(r"[.;:]\s", text):
        following: list[float] = []  # numbers whose unit may still come
        for part in NUMBER_OR_UNIT.finditer(sentence):
            if part["number"]:
                following.append(float(part["number"].replace(",", "")))
            else:
                last = PREFIXES[part["unit"]]
                found += [number * last for number in following]
                following = []
        found += [number * last for number in following if last]
    return found


def test_a_number_has_the_unit_of_its_sentence_or_the_last_one() -> None:
    text = "It has 7 layers. A step takes 14.7 GFLOP, and in training 41.0. That is 9. Prefill: 3 MFLOP and 2.5 TFLOP"
    assert flops_in(text) == [14.7e9, 41e9, 9e9, 3e6, 2.5e12]


@pytest.mark.parametrize("spec", [pytest.param(spec, id=spec.name) for spec in SPECS])
def test_a_docstring_has_the_parameters(spec: ModelSpec) -> None:
    assert not spec.parameters or f"{spec.parameters:,}" in docstring(spec)


@pytest.mark.parametrize(
    ("spec", "mode"), [pytest.param(spec, mode, id=f"{spec.name}-{mode}") for spec in SPECS for mode in spec.modes()]
)
def test_a_docstring_has_the_work_of_a_step(spec: ModelSpec, mode: Mode) -> None:
    pinned = work_at_default(Step(spec.name, mode, Batch.DEFAULT), PINNED, WITH_DATA)
    if pinned is None:
        pytest.skip("its work at the default batch is not pinned")
    assert pinned.flops is not None
    assert any(isclose(flops, pinned.flops, rel_tol=0.01) for flops in flops_in(docstring(spec)))
