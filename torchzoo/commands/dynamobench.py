"""`torchzoo dynamobench -- OPTIONS`: PyTorch's own benchmark, unmodified, on the models of this zoo."""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
from importlib import metadata
from pathlib import Path
from typing import Any

from torchzoo.commands.arguments import recorded_path, usable_path
from torchzoo.dynamobench import checkout, launch
from torchzoo.errors import UsageError
from torchzoo.zoo.catalog import find_models

#: Options of dynamobench that these models do not support, and what to use instead.
REFUSED = {
    "--multiprocess": "torchzoo run --world N --parallel ddp measures a step on several GPUs",
    "--fsdp": "torchzoo run --world N --parallel fsdp2 measures a step on several GPUs",
    "--part": "our models have no parts",
}


def add_parser(commands: Any) -> None:
    """Add `dynamobench` to argparse's subcommands."""
    parser = commands.add_parser(
        "dynamobench",
        help="run PyTorch's own benchmarks/dynamo/torchbench.py on these models",
        description="Run benchmarks/dynamo/torchbench.py of a checkout of pytorch, unmodified, on the models of this "
        "zoo. Write its options behind `--`, such as: torchzoo dynamobench --pytorch ~/pytorch -- --accuracy "
        "--inference --inductor -d cpu --only resnet18. The exit status is that of dynamobench.",
    )
    parser.add_argument(
        "--pytorch",
        type=usable_path,
        metavar="DIR",
        help=f"a checkout of pytorch/pytorch, at the version of torch that is installed (default: {checkout.VARIABLE})",
    )
    parser.add_argument(
        "--models-dir", type=recorded_path, action="append", default=[], metavar="DIR", help="more model folders"
    )
    parser.add_argument("options", nargs="*", metavar="OPTION", help="behind `--`: options of dynamobench")
    parser.set_defaults(command=run)


def run(arguments: argparse.Namespace) -> int:
    """Start dynamobench; returns its exit status."""
    for option in arguments.options:
        if (name := option.partition("=")[0]) in REFUSED:
            raise UsageError(f"dynamobench {name} does not work on these models: {REFUSED[name]}")
    command, environment = launched(arguments.pytorch, arguments.models_dir, arguments.options)
    sys.stdout.flush()
    status = subprocess.run(command, check=False, env=environment).returncode  # noqa: S603  this Python
    return status if status >= 0 else 128 - status  # as in a shell, for a process that a signal ended


def launched(pytorch: Path | None, models_dirs: list[Path], options: list[str]) -> tuple[list[str], dict[str, str]]:
    """The command that runs dynamobench, and its environment."""
    named = pytorch or (Path(os.environ[checkout.VARIABLE]) if os.environ.get(checkout.VARIABLE) else None)
    folder = checkout.dynamobench_folder(named, metadata.version("torch"))
    find_models(models_dirs)
    more = [os.environ.get("TORCHZOO_PATH", ""), *(str(path.resolve()) for path in models_dirs)]
    environment = {
        **os.environ,
        launch.FOLDER: str(folder),
        "TORCHZOO_PATH": os.pathsep.join(filter(None, more)),
    }
    return [sys.executable, str(Path(launch.__file__).resolve()), *options], environment
