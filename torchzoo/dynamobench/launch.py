"""Run dynamobench in this process: `python launch.py OPTIONS`, with the options of its torchbench.py.

Dynamobench restarts itself for each model as `sys.executable sys.argv`, so this file must be the script. The folder of
dynamobench is in an environment variable, since all options are dynamobench's.
"""

from __future__ import annotations

import functools
import importlib.util
import os
import sys
from pathlib import Path

#: The environment variable with the folder of dynamobench.
FOLDER = "TORCHZOO_DYNAMOBENCH"


def main() -> None:
    """Make the zoo's models importable as TorchBench's, then run dynamobench's own file."""
    folder = os.environ[FOLDER]
    sys.path[0] = folder  # as for its own script; torchzoo's modules must not hide others
    root = str(Path(__file__).resolve().parents[2])
    if root not in sys.path:
        sys.path.append(root)  # a checkout that is not installed

    from torchzoo.dynamobench.adapter import benchmark_class
    from torchzoo.dynamobench.finder import ZooFinder, install
    from torchzoo.zoo.catalog import find_models

    catalog = find_models()
    install(ZooFinder(catalog, functools.partial(benchmark_class, catalog)))
    run_as_main(Path(folder, "torchbench.py"))


def run_as_main(path: Path) -> None:
    """Run a file as the module `__main__`, without changing `sys.argv[0]` as `runpy` does."""
    spec = importlib.util.spec_from_file_location("__main__", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["__main__"] = module
    spec.loader.exec_module(module)


if __name__ == "__main__":
    main()
