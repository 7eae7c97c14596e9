"""Import rules beside the layers of pyproject.toml, and the one broad `except`."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

from examples import ROOT

#: What the folder of a model may import of torchzoo.
FOR_MODELS = ("case", "model")

#: Modules that answer without torch. Everything but these layers, and the few modules below.
WITH_TORCH = ("model", "measure")
WITH_TORCH_MODULES = frozenset(
    {
        "torchzoo.zoo.contract",
        "torchzoo.zoo.waiting",
        "torchzoo.run.preload",
        "torchzoo.__main__",
        "torchzoo.tasks",
        "torchzoo.dynamobench.adapter",
    }
    | {
        f"torchzoo.backends.{name}"
        for name in (
            "aoti",
            "call",
            "dynamo",
            "export",
            "onnxrt",
            "openvino",
            "optimizer_copies",
            "tensorrt",
            "torchscript",
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
            yield from (f"torchzoo.{alias.name}" for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and (node.module or "").startswith("torchzoo."):
            yield str(node.module)


def layer(module: str) -> str:
    return module.split(".")[1] if "." in module else ""


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
