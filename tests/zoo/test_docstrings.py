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
from pinned_work import Batch, Step
from torchzoo.case import Mode
from torchzoo.zoo.catalog import find_models
from torchzoo.zoo.spec import ModelSpec
from torchzoo.zoo.suites import read_suite

PINNED = pinned_work.read()
CATALOG = find_models()
SPECS = [CATALOG.spec(name) for name in CATALOG.names if name not in read_suite("torchbench").models]
PREFIXES = {"M": 1e6, "G": 1e9, "T": 1e12, "P": 1e15}


def docstring(spec: ModelSpec) -> str:
    """The docstring of a model's module, in one line."""
    code = (Path(spec.folder) / "__init__.py").read_text(encoding="utf-8")
    return " ".join((ast.get_docstring(ast.parse(code)) or "").split())


def flops_in(text: str) -> list[float]:
    """All its numbers, in each unit of FLOPs that it has: sentences say `14.7 GFLOP, and in training 41.0`."""
    numbers = [float(number.replace(",", "")) for number in re.findall(r"\d[\d,]*(?:\.\d+)?", text)]
    units = {PREFIXES[prefix] for prefix in re.findall(r"([MGTP])FLOP\b", text)}
    return [number * unit for number in numbers for unit in units]


@pytest.mark.parametrize("spec", [pytest.param(spec, id=spec.name) for spec in SPECS])
def test_a_docstring_has_the_parameters(spec: ModelSpec) -> None:
    assert not spec.parameters or f"{spec.parameters:,}" in docstring(spec)


@pytest.mark.parametrize(
    ("spec", "mode"), [pytest.param(spec, mode, id=f"{spec.name}-{mode}") for spec in SPECS for mode in spec.modes()]
)
def test_a_docstring_has_the_work_of_a_step(spec: ModelSpec, mode: Mode) -> None:
    pinned = PINNED[Step(spec.name, mode, Batch.DEFAULT)].flops
    if pinned is None:
        pytest.skip("its work at the default batch is not pinned")
    assert any(isclose(flops, pinned, rel_tol=0.01) for flops in flops_in(docstring(spec)))
