"""`torchzoo export RUN`: a run for the dashboards and scripts of others."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from torchzoo.commands.arguments import folder, kept_run, usable_path, write
from torchzoo.errors import UsageError
from torchzoo.report import exports, op_shapes, terminal
from torchzoo.store import StoreError


def add_parser(commands: Any) -> None:
    """Add `export` to argparse's subcommands."""
    parser = commands.add_parser(
        "export",
        help="write a run for PyTorch's dashboard, as the CSV files of PyTorch's dynamo benchmarks, or its operators",
        description="Write a run for other programs: hud-v3 is for PyTorch's dashboard (JSON Lines, version 3 of its "
        "benchmark database, raw samples included), dynamo-csv has the columns of pytorch/benchmarks/dynamo, a file "
        "for each backend, precision, mode and device. op-shapes has the operators of each model with their shapes, "
        "dtypes, calls and shares of time, of a run with `torchzoo run --op-shapes` (JSON Lines: each line has the "
        "case, variant, operator, shapes, dtypes, calls_per_step, time_per_step_s and share; the operator is null for "
        "all that a record does not list one by one).",
    )
    parser.add_argument("run", type=usable_path, metavar="RUN")
    parser.add_argument("--format", choices=["hud-v3", "dynamo-csv", "op-shapes"], required=True)
    parser.add_argument(
        "-o", "--output", type=usable_path, metavar="PATH", help="a file, or for dynamo-csv a folder (default: print)"
    )
    parser.set_defaults(command=run)


def run(arguments: argparse.Namespace) -> int:
    """Write or print the run.

    Raises:
        UsageError: there are several CSV files and no folder for them, or a file can't be written.
        StoreError: the run holds nothing that can be written in that form.
    """
    kept = kept_run(arguments.run)
    if arguments.format == "hud-v3":
        text = exports.hud_v3(kept)
        if not text:
            raise StoreError(f"{arguments.run} holds no measured case to export")
        write(text, arguments.output)
        return 0
    if arguments.format == "op-shapes":
        text = op_shapes.op_shapes(kept)
        if not text:
            raise StoreError(f"{arguments.run} has no operators with shapes: measure with `torchzoo run --op-shapes`")
        write(text, arguments.output)
        return 0
    files = exports.dynamo_csv(kept)
    if not files:
        raise StoreError(
            f"{arguments.run} has no case of a backend beside eager, and dynamo's files hold only such cases"
        )
    output: Path | None = arguments.output
    if output is None:
        if len(files) > 1:
            raise UsageError(f"the run gives {len(files)} files: name a folder for them with -o")
        write(next(iter(files.values())), None)
        return 0
    folder(output, "-o")
    for name, text in files.items():
        write(text, output / name)
        terminal.show_line(str(output / name))
    return 0
