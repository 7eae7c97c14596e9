"""The scripts that run dynamobench over the zoo: their tables say what came of each model, and why."""

from __future__ import annotations

import importlib
import json
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from examples import INDUCTOR, ROOT, compared, record, run_of
from torchzoo.case import Mode
from torchzoo.store import RunStore
from torchzoo.zoo.catalog import find_models

REFUSED = """Traceback (most recent call last):
  File "common.py", line 1, in run
NotImplementedError: tiny: dynamobench can't form a loss from its outputs: a | b
model_fail_to_load
"""
WITH_CAUSE = """ValueError: shapes differ

The above exception was the direct cause of the following exception:

RuntimeError: Eager run failed
"""


@pytest.fixture
def scripts(monkeypatch: pytest.MonkeyPatch) -> tuple[ModuleType, ModuleType]:
    monkeypatch.syspath_prepend(ROOT / "benchmarks")
    return importlib.import_module("dynamobench"), importlib.import_module("dynamobench_performance")


def row(name: str, mode: str, status: str, **changes: Any) -> dict[str, Any]:
    made = {"name": name, "mode": mode, "status": status, "backend": "aot_eager", "device": "cpu", "batch_size": 2}
    return {**made, "output": "", "torch": "2.15.0", "date": "2026-11-22", "timeout_s": 120.0, "cells": {}, **changes}


def test_the_page_counts_and_gives_reasons(scripts: tuple[ModuleType, ModuleType]) -> None:
    rows = [
        row("resnet18", "inference", "pass"),
        row("resnet18", "training", "model_fail_to_load", output=REFUSED),
        row("alexnet", "inference", "timeout"),
        row("maml", "inference", "pass_due_to_skip"),
        row("dcgan", "training", "eager_fail_to_run", output=WITH_CAUSE),
    ]
    page = scripts[0].page(rows)
    assert (
        "| mode | models | run | eager_fail_to_run | model_fail_to_load | pass | pass_due_to_skip | timeout |" in page
    )
    lines = page.splitlines()
    refusal = "tiny: dynamobench can't form a loss from its outputs: a \\| b"
    assert f"| resnet18 | pass | model_fail_to_load | {refusal} |" in lines
    assert "| alexnet | timeout | not run | not finished in 120 s on one thread |" in lines
    assert "| dcgan | not run | eager_fail_to_run | shapes differ |" in lines
    assert "--only torchzoo_maml does" in page
    others = len([spec for spec in find_models().specs()[0] if not spec.large]) - 4
    assert f"Not run, for lack of time: the other {others}." in lines
    many = [row(name, "inference", "pass") for name in find_models().names if name != "resnet18"]
    assert "Not run, for lack of time: resnet18, torchzoo_vision_maskrcnn, torchzoo_yolov3." in scripts[0].page(many)
    assert "| sam | " in page.split("too large for a CPU")[1]


def test_of_equal_cases_the_last_line_counts(scripts: tuple[ModuleType, ModuleType], tmp_path: Path) -> None:
    path = tmp_path / "rows.jsonl"
    lines = [row("dcgan", "training", "timeout"), row("dcgan", "training", "pass"), row("dcgan", "inference", "pass")]
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    assert [found["status"] for found in scripts[0].rows_of(path)] == ["pass", "pass"]


def test_their_figures_stand_beside_ours(scripts: tuple[ModuleType, ModuleType], tmp_path: Path) -> None:
    cells = {"speedup": "1.600000", "abs_latency": "125.0", "batch_size": "4"}
    lines = [
        row("tiny", "inference", "measured", cells=cells),
        row("tiny", "training", "crashed"),
    ]
    (tmp_path / "dynamobench.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    found = record(compared(), backend=INDUCTOR, mode=Mode.EVAL)
    with RunStore(tmp_path / "torchzoo") as run_store:
        run_store.begin(run_of([found]).manifest)
        run_store.append(found)
    _, _, first, second = scripts[1].table(tmp_path).splitlines()
    assert (
        first
        == "| tiny | inference | 4 | 200.000 | 125.000 | 1.600 | 200.000 | 100.000 | 2.000 [2.000, 2.000] | 1.250 |"
    )
    assert second == "| tiny | training |  |  |  | crashed |  |  | not measured |  |"
