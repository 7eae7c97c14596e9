"""`torchzoo tune-batch`: the evaluation batch that suits this device."""

from __future__ import annotations

import argparse
import tempfile
from pathlib import Path
from typing import Any

from torchzoo.case import EAGER, Axes, Mode, Precision
from torchzoo.commands.arguments import (
    add_models,
    choices,
    chosen_models,
    devices_of,
    positive_int,
    seconds,
    usable_path,
)
from torchzoo.commands.run import say_tried
from torchzoo.report import terminal
from torchzoo.run.batches import TIME_LIMIT_S, default_file
from torchzoo.run.interrupts import terminated_as_interrupted
from torchzoo.run.request import RunRequest
from torchzoo.run.tuning import tune_batches
from torchzoo.settings import Settings


def add_parser(commands: Any) -> None:
    """Add `tune-batch` to argparse's subcommands."""
    parser = commands.add_parser(
        "tune-batch",
        help="find evaluation batch sizes for this device",
        description="Double the evaluation batch of models until throughput stops rising (by 5%) or memory is "
        "out, and keep what was found in a file; `torchzoo run` uses torchzoo's own file where the device matches.",
    )
    add_models(parser)
    parser.add_argument("-d", "--device", metavar="D", help="cpu, cuda, ... (default: the accelerator, else cpu)")
    parser.add_argument("--precision", default="default", metavar="P", help=f"{', '.join(Precision)}")
    parser.add_argument(
        "--file", type=usable_path, default=default_file(), metavar="F", help="(default: torchzoo's own)"
    )
    parser.add_argument("--time-limit", type=seconds, default=TIME_LIMIT_S, metavar="S", help="of timing a batch size")
    parser.add_argument("-j", "--jobs", type=positive_int, metavar="N", help="as for run")
    parser.set_defaults(command=run)


@terminated_as_interrupted()
def run(arguments: argparse.Namespace) -> int:
    """Find the batches, print and keep them."""
    patterns, suites = chosen_models(arguments)
    devices = devices_of(arguments.device)[:1] if arguments.device is not None else ()
    request = RunRequest(
        patterns=patterns,
        suites=suites,
        axes=Axes(
            modes=(Mode.EVAL,),
            devices=devices,
            backends=(EAGER,),
            precisions=choices(arguments.precision, Precision, "precision")[:1],
        ),
        settings=Settings(time_limit_s=arguments.time_limit),
        jobs=arguments.jobs,
        models_dirs=tuple(map(str, arguments.models_dir)),
    )
    with tempfile.TemporaryDirectory(prefix="torchzoo-tune-") as logs:
        found = tune_batches(request, arguments.file, logs=Path(logs), on_tried=say_tried)
    for name, tuned in found.items():
        curve = ", ".join(f"{size}: {rate:g}" for size, rate in tuned.samples_per_s.items())
        terminal.show_line(f"{name}: batch {tuned.batch_size} (samples/s at {curve})")
    terminal.say(f"kept in {arguments.file}")
    return 0 if found else 1
