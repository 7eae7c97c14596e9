"""Count what the program is made of: `python tools/count.py [CHECKOUT]`.

Compare two commits by running the newer copy of this file on a worktree of each.
"""

from __future__ import annotations

import ast
import statistics
import sys
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator
from pathlib import Path


def main(root: Path) -> None:
    """Print one figure a line."""
    package = root / "torchzoo"
    trees = {_module(path, root): ast.parse(path.read_text(encoding="utf-8")) for path in sorted(package.rglob("*.py"))}
    importers: dict[str, set[str]] = defaultdict(set)
    arrows: set[tuple[str, str]] = set()
    for module, tree in trees.items():
        for target in _imported(tree, module, trees.keys()):
            importers[target].add(module)
            if len({_part(target), _part(module), "torchzoo"}) == 3:  # the facade imports late what it offers
                arrows.add((_part(module), _part(target)))
    functions = [
        (node.end_lineno or node.lineno) - node.lineno + 1
        for tree in trees.values()
        for node in ast.walk(tree)
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
    ]
    is_package = {_module(path.parent / "__init__.py", root) for path in package.rglob("__init__.py")}
    figures = {
        "lines of torchzoo/": _lines(package),
        "lines of tests/": _lines(root / "tests"),
        "modules": len(trees),
        "modules with one importer": sum(len(importers[name]) == 1 for name in trees if name not in is_package),
        "modules at the root": len(list(package.glob("*.py"))),
        "packages": len({name for name in is_package if name.count(".") == 1}),
        "arrows between packages": len(arrows),
        "cycles between packages": len(_cycles(arrows)),
        "files that name compile_scope": sum("compile_scope" in path.read_text() for path in package.rglob("*.py")),
        "column models": len(_column_models(trees)),
        "names of several modules": _twice(name.rpartition(".")[2] for name in trees),
        "names of several classes": _twice(
            node.name for tree in trees.values() for node in ast.walk(tree) if isinstance(node, ast.ClassDef)
        ),
        "functions": len(functions),
        "lines of the median function": statistics.median(functions),
        "functions of more than 55 lines": sum(count > 55 for count in functions),
    }
    for name, value in figures.items():
        print(f"{value:>9,.0f}  {name}")


def _module(path: Path, root: Path) -> str:
    return ".".join(path.relative_to(root).with_suffix("").parts).removesuffix(".__init__")


def _part(module: str) -> str:
    """The package or the module at the root that a module belongs to."""
    return ".".join(module.split(".")[:2])


def _lines(folder: Path) -> int:
    return sum(path.read_text(encoding="utf-8").count("\n") for path in folder.rglob("*.py"))


def _imported(tree: ast.Module, module: str, modules: Iterator[str] | object) -> Iterator[str]:
    """The modules of torchzoo that a module imports anywhere, also for type checkers alone."""
    known = set(modules)  # type: ignore[call-overload]
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names if alias.name in known - {module})
        elif isinstance(node, ast.ImportFrom) and (node.module or "").startswith("torchzoo"):
            for alias in node.names:
                inner = f"{node.module}.{alias.name}"
                target = inner if inner in known else str(node.module)
                if target in known - {module}:
                    yield target


def _cycles(arrows: set[tuple[str, str]]) -> set[frozenset[str]]:
    """The groups of packages that import each other, directly or through others."""
    reached: dict[str, set[str]] = defaultdict(set)
    for source, target in arrows:
        reached[source].add(target)
    for middle in list(reached):
        for one in list(reached):
            if middle in reached[one]:
                reached[one] |= reached[middle]
    groups = (frozenset(b for b in reached[a] if a in reached.get(b, ())) for a in list(reached) if a in reached[a])
    return set(groups)


def _column_models(trees: dict[str, ast.Module]) -> list[str]:
    """The modules that declare the figures of a case.

    They name its speedup, and its memory or its latency, in strings, and do not read the figures of another module.
    """
    found = []
    for module, tree in trees.items():
        if "torchzoo.analysis.frame" in _imported(tree, module, trees.keys()):
            continue
        words = {str(node.value).lower() for node in ast.walk(tree) if isinstance(node, ast.Constant)}
        if "speedup" in words and words & {"memory", "abs_latency", "latency_s", "compile_s"}:
            found.append(module)
    return found


def _twice(names: Iterable[str]) -> int:
    return sum(count > 1 for count in Counter(names).values())


if __name__ == "__main__":
    main(Path(sys.argv[1] if len(sys.argv) > 1 else Path(__file__).resolve().parent.parent))
