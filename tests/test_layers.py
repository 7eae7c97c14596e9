"""The import law: no arrow upward, torch only where it belongs; and the few rules that keep the tree readable."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from examples import ROOT
from torchzoo import tasks

#: From bottom to top. A module may import what stands in its own layer or in one above it in this list, never below.
#: (`errors`, `bounds`, `case` and `settings` come first: they import nothing but what stands before them.)
LAYERS = (
    ("errors", "bounds"),
    ("case", "container", "cores", "frames", "heap", "host", "settings", "files", "operators", "peaks", "verdict"),
    ("record",),
    ("decoding",),
    ("store", "stats", "environment", "attention", "data", "tensors", "dispatch"),
    ("provenance", "trials"),
    ("model",),
    ("tasks",),
    ("zoo",),
    ("networks", "backends"),
    ("measure",),
    ("run",),
    ("analysis",),
    ("report",),
    ("userbenchmark", "install", "history", "dynamobench"),
    ("study_cases",),
    ("study",),
    ("commands",),
    ("cli",),
    ("__main__",),
)
RANK = {name: rank for rank, names in enumerate(LAYERS) for name in names}

#: What the folder of a model may import of torchzoo.
FOR_MODELS = ("attention", "case", "data", "model", "networks", "tasks", "tensors")

#: Modules that answer without torch. Everything but these layers, and the few modules below.
WITH_TORCH = ("attention", "model", "tasks", "data", "tensors", "dispatch", "networks", "measure")
WITH_TORCH_MODULES = frozenset(
    {
        "torchzoo.zoo.contract",
        "torchzoo.zoo.waiting",
        "torchzoo.run.preload",
        "torchzoo.__main__",
        "torchzoo.dynamobench.adapter",
    }
    | {
        f"torchzoo.backends.{name}"
        for name in (
            "aoti",
            "call",
            "dynamo",
            "export",
            "other_values",
            "onnxrt",
            "openvino",
            "step_change",
            "tensorrt",
            "torchscript",
            "twins",
        )
    }
)


def modules(root: Path) -> Iterator[tuple[str, Path]]:
    for path in sorted((root / "torchzoo").rglob("*.py")):
        yield ".".join(path.relative_to(root).with_suffix("").parts).removesuffix(".__init__"), path


def imported(path: Path) -> Iterator[str]:
    """Modules of torchzoo that a file imports anywhere, also inside functions and for type checkers alone."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names if alias.name.startswith("torchzoo."))
        elif isinstance(node, ast.ImportFrom) and node.module == "torchzoo":
            yield from (f"torchzoo.{alias.name}" for alias in node.names if alias.name in RANK)
        elif isinstance(node, ast.ImportFrom) and (node.module or "").startswith("torchzoo."):
            yield str(node.module)


def layer(module: str) -> str:
    return module.split(".")[1] if "." in module else ""


def upward(root: Path) -> list[str]:
    return [
        f"{module} imports {target}"
        for module, path in modules(root)
        for target in imported(path)
        if layer(module) and RANK[layer(target)] > RANK[layer(module)]
    ]


def test_no_import_goes_upward() -> None:
    assert upward(ROOT) == ["torchzoo.model imports torchzoo.tasks"]  # what moved there is still found


def test_the_bases_of_tasks_are_found_where_they_stood_before() -> None:
    with pytest.warns(DeprecationWarning, match="SupervisedModel is in torchzoo.tasks now"):
        from torchzoo.model import SupervisedModel
    assert SupervisedModel is tasks.SupervisedModel
    with pytest.raises(ImportError, match="Nothing"):
        from torchzoo.model import Nothing  # noqa: F401


def test_an_import_that_goes_upward_is_found(tmp_path: Path) -> None:
    (tmp_path / "torchzoo" / "run").mkdir(parents=True)
    (tmp_path / "torchzoo" / "run" / "plan.py").write_text(
        "from torchzoo.case import Case\ndef f():\n    from torchzoo.report import units\n"
    )
    (tmp_path / "torchzoo" / "stats.py").write_text("from torchzoo import commands, record\n")
    assert upward(tmp_path) == [
        "torchzoo.run.plan imports torchzoo.report",
        "torchzoo.stats imports torchzoo.commands",
    ]


def test_every_module_has_a_layer() -> None:
    assert {layer(module) for module, _ in modules(ROOT)} - {""} == set(RANK)


def test_model_folders_import_only_what_is_for_them() -> None:
    found = {
        f"{path.relative_to(ROOT)}: {target}"
        for folder in ("models", "collections")
        for path in sorted((ROOT / folder).rglob("*.py"))
        for target in imported(path)
        if layer(target) not in FOR_MODELS
    }
    assert found == set()


def test_only_what_computes_imports_torch() -> None:
    names = [
        module for module, _ in modules(ROOT) if layer(module) not in WITH_TORCH and module not in WITH_TORCH_MODULES
    ]
    assert len(names) > 60
    code = f"""
import importlib, sys
for name in {names}:
    importlib.import_module(name)
    assert not {{"torch", "pandas"}} & set(sys.modules), name
"""
    done = subprocess.run([sys.executable, "-c", code], check=False, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def test_list_answers_without_torch() -> None:
    code = """
import sys
from torchzoo.cli import main
assert main(["list"]) == main(["list", "--json"]) == main(["list", "timm:resnet*", "--suite", "pt2_163"]) == 0
sys.exit(bool({"torch", "timm", "transformers"} & set(sys.modules)))
"""
    done = subprocess.run([sys.executable, "-c", code], check=False, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert "resnet18" in done.stdout
    assert "timm:resnet18" in done.stdout
    assert "hf:LongformerForMaskedLM:base" in done.stdout
    assert "models of the collection timm: torchzoo list 'timm:*'" in done.stderr


def test_one_broad_except_in_the_whole_project() -> None:
    broad = [
        f"{path.relative_to(ROOT)}:{node.lineno}"
        for folder in ("torchzoo", "models", "collections", "userbenchmark")
        for path in sorted((ROOT / folder).rglob("*.py"))
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if (isinstance(node, ast.ExceptHandler) and is_broad(node.type))
        or (
            isinstance(node, ast.Call) and ast.unparse(node.func).endswith("suppress") and any(map(is_broad, node.args))
        )
    ]
    assert [place.partition(":")[0] for place in broad] == ["torchzoo/errors.py"], broad


def is_broad(kind: ast.expr | None) -> bool:
    return kind is None or bool({"Exception", "BaseException"} & set(re.findall(r"\w+", ast.unparse(kind))))


PAGES = sorted(str(path.relative_to(ROOT)) for path in (ROOT / "docs").glob("*.md"))


@pytest.mark.parametrize("document", ["README.md", "CONTRIBUTING.md", *PAGES])
def test_paths_in_documents_exist(document: str) -> None:
    text = (ROOT / document).read_text(encoding="utf-8")
    paths = re.findall(r"`((?:torchzoo|tests|docs|benchmarks|userbenchmark|models|collections)/[\w./-]*)`", text)
    ours = [path for path in paths if not path.startswith("benchmarks/dynamo/")]  # PyTorch's
    assert [path for path in ours if not (ROOT / path).exists()] == []


WIDTH = 27  # of the names in a tree; what stands behind them explains


def tree(text: str) -> Iterator[Path]:
    """The paths of a document's tree. A folder ends in `/`, and what is indented below belongs to it."""
    (block,) = (part for part in text.split("```")[1::2] if "\nmodels/<name>/ " in part)
    above: list[tuple[int, Path]] = []
    for line in block.strip("\n").splitlines():
        names = line[:WIDTH]
        indent = len(names) - len(names.lstrip())
        above = [(depth, folder) for depth, folder in above if not names.strip() or depth < indent]
        parent = above[-1][1] if above else Path()
        for name in names.split():
            path = parent / name.replace("<name>/", "")
            yield path
            if name.endswith("/"):
                above.append((indent, path))


@pytest.mark.parametrize("document", ["README.md", "docs/architecture.md"])
def test_the_documents_tree_is_the_tree(document: str) -> None:
    named = set(tree((ROOT / document).read_text(encoding="utf-8")))
    assert len(named) > 8
    assert [str(path) for path in sorted(named) if not (ROOT / path).exists()] == []


def test_the_tree_of_the_architecture_has_every_package() -> None:
    named = set(tree((ROOT / "docs/architecture.md").read_text(encoding="utf-8")))
    packages = {path.parent.relative_to(ROOT) for path in (ROOT / "torchzoo").rglob("__init__.py")}
    assert packages - named == set()
