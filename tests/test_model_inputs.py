"""What the tests of a model read: all of it counts, and it is all."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import msgspec
import pytest

from examples import ROOT
from model_inputs import CONTRACT, TABLE, contained, inputs_of, installed
from torchzoo.zoo.catalog import find_models


def test_a_change_in_what_a_model_reads_runs_its_test_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    spec = msgspec.structs.replace(find_models().spec("dcgan"), folder=str(tmp_path / "models" / "dcgan"))
    files = [path for name in (*CONTRACT, *TABLE) for path in contained(ROOT / name)] + contained(ROOT / "models/dcgan")
    for path in files:
        copy = tmp_path / path.relative_to(ROOT)
        copy.parent.mkdir(parents=True, exist_ok=True)
        copy.write_bytes(path.read_bytes())
    seen = {inputs_of(spec, tmp_path, TABLE)}
    for path in files:
        (tmp_path / path.relative_to(ROOT)).write_bytes(path.read_bytes() + b"\nA = 1\n")
        seen.add(inputs_of(spec, tmp_path, TABLE))
    assert len(files) > 30
    seen.add(inputs_of(spec, tmp_path, TABLE, facts=["another figure"]))
    assert len(seen) == 2 + len(files)

    before = inputs_of(spec, tmp_path)
    monkeypatch.setattr("kept_passes.importlib.metadata.distributions", list)
    installed.cache_clear()
    assert inputs_of(spec, tmp_path) != before
    installed.cache_clear()


def test_what_models_read_of_torchzoo_is_all_that_they_import() -> None:
    code = (
        "import sys, torchzoo.zoo.contract, torchzoo.tasks\n"
        "print(*(module.__file__ for name, module in sys.modules.items() if name.startswith('torchzoo')))"
    )
    printed = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True, cwd=ROOT).stdout
    imported = {Path(name).relative_to(ROOT) for name in printed.split()}
    assert imported <= {file.relative_to(ROOT) for name in CONTRACT for file in contained(ROOT / name)}
    assert Path("torchzoo/model.py") in imported
