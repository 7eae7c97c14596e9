# ruff: noqa: INP001  a script beside its results
"""Steps of `lennard_jones` in evaluation with torch's own `_chunked_standard_basis_for_`, and with another torch's.

    python jacrev.py EAGER_TRANSFORMS_OF_THE_OTHER_TORCH

`torch.func.jacrev` calls that function. Both are timed in turns in one process, without gradients.
"""

import __future__

import ast
import statistics
import sys
import time
from pathlib import Path

import torch
import torch._functorch.eager_transforms as transforms

from torchzoo.zoo.catalog import find_models, load_model_class

NAME = "_chunked_standard_basis_for_"
torch.set_num_threads(1)
model = load_model_class(find_models().spec("lennard_jones"))("eval", "cpu", 4)
tree = ast.parse(Path(sys.argv[1]).read_text())
function = next(one for one in tree.body if isinstance(one, ast.FunctionDef) and one.name == NAME)
names = dict(vars(transforms))
flags = __future__.annotations.compiler_flag
exec(compile(ast.Module([function], []), sys.argv[1], "exec", flags=flags), names)  # noqa: S102
variants = {"its own": getattr(transforms, NAME), "the other's": names[NAME]}
took = {name: [] for name in variants}
for turn in range(24):
    for name in list(variants)[:: 1 if turn % 2 else -1]:
        setattr(transforms, NAME, variants[name])
        began = time.perf_counter()
        for _ in range(60):
            model.measured_step()
        if turn > 3:
            took[name].append((time.perf_counter() - began) / 60)
medians = {name: statistics.median(values) for name, values in took.items()}
print(torch.__version__, {name: f"{1e6 * value:.0f} µs" for name, value in medians.items()})
