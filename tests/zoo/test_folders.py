"""The zoo as a whole: folders stand alone, and those of library models stay short."""

from __future__ import annotations

import ast
from pathlib import Path

import msgspec
import pytest

from examples import ROOT
from torchzoo.case import Mode
from torchzoo.zoo.catalog import find_models
from torchzoo.zoo.folders import bundled
from torchzoo.zoo.spec import ModelSpec

CATALOG = find_models()
SPECS = [CATALOG.spec(name) for name in CATALOG.names]


def imports(tree: ast.AST) -> list[tuple[int, str]]:
    """Level and name of all that is imported, the names of `from . import a` one by one."""
    found: list[tuple[int, str]] = []
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            found += [(0, alias.name) for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            names = [node.module] if node.module else [alias.name for alias in node.names]
            found += [(node.level, name) for name in names]
    return found


def strays(folder: Path) -> list[str]:
    """Imports in a model's folder that lead into another one, except into what the models share."""
    found = []
    for path in sorted(folder.rglob("*.py")):
        depth = len(path.relative_to(folder).parts)  # how many dots stay in the folder
        for level, name in imports(ast.parse(path.read_text(encoding="utf-8"))):
            first = name.split(".")[0]
            is_shared = level == depth + 1 and first == "_shared"
            if (level > depth and not is_shared) or (level == 0 and first in ("torchzoo_models", "models")):
                found.append(f"{path.relative_to(folder)}: {'.' * level}{name}")
    return found


@pytest.mark.parametrize("folder", [*CATALOG.folders.values(), bundled("models") / "_shared"], ids=lambda one: one.name)
def test_no_model_folder_imports_another(folder: Path) -> None:
    assert strays(folder) == []


def other_operations(spec: ModelSpec, table: str) -> list[Mode]:
    """The modes of which `metadata.yaml` says other operations than the table of models, which its own test counts."""
    (row,) = [line for line in table.splitlines() if line.startswith(f"| {spec.name} |")]
    cells = row.removesuffix(" |").rpartition(" | ")[2].replace(",", "").split("; ")  # equal ones stand once
    counted = [float(cell) for cell in cells if cell.replace(".", "").isdigit()]
    known = [pytest.approx(gflop, rel=1e-3) for gflop in counted]
    return [mode for mode, gflop in spec.gflop_per_step.items() if gflop not in known]


def test_operations_in_metadata_are_those_of_the_table() -> None:
    table = (ROOT / "docs" / "models.md").read_text(encoding="utf-8")
    assert {spec.name: other for spec in SPECS if (other := other_operations(spec, table))} == {}
    spec = msgspec.structs.replace(CATALOG.spec("resnet18"), gflop_per_step={Mode.TRAIN: 170.4, Mode.EVAL: 58.05})
    assert other_operations(spec, table) == [Mode.EVAL]  # at a batch of 8, not of 16
