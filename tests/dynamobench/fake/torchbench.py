"""A made-up dynamobench. It asks for models as the real one does (its torchbench.py of August 2026), and runs a step.

Without `--only` it starts itself again for each model.
"""

import argparse
import copy
import importlib
import importlib.util
import json
import subprocess
import sys
import traceback
from pathlib import Path
from typing import Any

import torch
from torch._dynamo.testing import reduce_to_scalar_loss
from torch._dynamo.utils import clone_inputs

try:
    from .common import options  # as in a package
except ImportError:
    from common import options


def load(name: str, arguments: argparse.Namespace) -> tuple[str, torch.nn.Module, Any, int]:
    candidates = [f"torchbenchmark.models.{name}", f"torchbenchmark.canary_models.{name}"]
    if importlib.util.find_spec("torchbenchmark.models.fb") is not None:
        candidates.append(f"torchbenchmark.models.fb.{name}")
    for candidate in candidates:
        try:
            module = importlib.import_module(candidate)
            break
        except ModuleNotFoundError as error:
            if error.name != candidate:
                raise
    else:
        raise ImportError(f"no {candidates}")
    model_class = module.Model
    given = {} if name != "vision_maskrcnn" else {"model_kwargs": {"box_detections_per_img": 4}}
    benchmark = model_class(
        test="train" if arguments.training else "eval",
        device="cpu",
        batch_size=arguments.batch_size if getattr(model_class, "ALLOW_CUSTOMIZE_BSIZE", True) else None,
        extra_args=["--rank", "0", "--world_size", "1"],
        **given,
    )
    network, inputs = benchmark.get_module()
    network.train() if arguments.training else network.eval()
    return benchmark.name, network, inputs, benchmark.batch_size


def step(network: torch.nn.Module, inputs: Any, *, training: bool) -> float:
    network, inputs = copy.deepcopy(network), clone_inputs(inputs)
    with torch.set_grad_enabled(training):
        outputs = network(**inputs) if isinstance(inputs, dict) else network(*inputs)
        loss = reduce_to_scalar_loss(outputs)
    if training:
        loss.backward()
    return loss.item()


def main() -> None:
    arguments = options(sys.argv[1:])
    if arguments.only is None:
        from torchbenchmark import _list_canary_model_paths, _list_model_paths

        for path in sorted(_list_model_paths() + _list_canary_model_paths()):
            subprocess.check_call([sys.executable, *sys.argv, f"--only={Path(path).name}"])
        return
    try:
        name, network, inputs, batch_size = load(arguments.only, arguments)
        row = {"name": name, "batch_size": batch_size, "loss": step(network, inputs, training=arguments.training)}
    except NotImplementedError:
        row = {"name": arguments.only, "status": "model_fail_to_load", "why": traceback.format_exc()}
    with Path(arguments.output_directory, "rows.jsonl").open("a") as file:
        file.write(json.dumps(row) + "\n")


if __name__ == "__main__":
    main()
